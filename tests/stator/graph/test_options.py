"""Options of a state: each wrong value gets one line with graph, state, option and what is wanted."""

import re

import pytest

from stator.exceptions import GraphError
from stator.graph.backoff import Backoff
from stator.graph.graphs import State, StateGraph


def option(**options):
    class Optional(StateGraph):
        opened = State(**({"try_interval": 1} | options))
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


BAD_OPTIONS = [
    ({"try_interval": 0}, "seconds above 0"),
    ({"try_interval": "60"}, "seconds above 0"),
    ({"try_interval": float("nan")}, "seconds above 0"),
    ({"try_interval": 1e18}, "seconds above 0"),
    ({"handler_name": "not a name"}, "the name of a method"),
    ({"externally_progressed": 1}, "True or False"),
    ({"attempt_immediately": "no"}, "True or False"),
    ({"force_initial": None}, "True or False"),
    ({"enter_by_hand": None}, "True or False"),
    ({"leave_by_hand": None}, "True or False"),
    ({"delete_after": 0}, "seconds above 0"),
    ({"jitter": 1}, "a fraction"),
    ({"backoff": "slow"}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(base=-1)}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(factor=0.5)}, "seconds above 0, a Backoff"),
    ({"max_failures": 0}, "a whole number"),
    ({"max_runtime": -5}, "seconds above 0"),
    ({"lease": "long"}, "seconds above 0"),
    ({"expect_within": 0}, "seconds above 0"),
    ({"renamed_from": ""}, "the former name"),
    ({"quarantine": None}, "True or False"),
    ({"saves": "result"}, "a list of names of fields"),
    ({"atomic": "yes"}, "True or False"),
    ({"batch": 0}, "a whole number"),
    ({"concurrency": -1}, "a whole number"),
]


@pytest.mark.parametrize(("options", "wanted"), BAD_OPTIONS, ids=str)
def test_wrong_option_names_graph_state_option_value_and_what_is_wanted(options, wanted):
    ((name, value),) = options.items()
    with pytest.raises(GraphError, match=re.escape(f"Optional.opened: {name}={value!r} must be ")) as caught:
        option(**options)
    assert wanted in str(caught.value)


def test_unknown_option_names_the_nearest():
    with pytest.raises(TypeError, match="no option 'try_intervall'; did you mean 'try_interval'"):
        State(try_intervall=5)
    with pytest.raises(TypeError, match="no option 'zzz'; options are atomic, attempt_immediately, backoff"):
        State(zzz=5)
