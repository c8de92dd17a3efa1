"""Graphs that may not be declared: each mistake gets one line."""

import re

import pytest

from stator.exceptions import GraphError
from stator.graph.backoff import Backoff
from stator.graph.graphs import RESERVED, State, StateGraph
from tests.stator.graph.parcels import Parcel
from tests.testapp.basic import StepGraph


def nothing():
    class Nothing(StateGraph):
        pass


def two_initial():
    class Two(StateGraph):
        one = State()
        other = State()


def ring():
    class Ring(StateGraph):
        left = State(externally_progressed=True)
        right = State(externally_progressed=True)
        left.transitions_to(right)
        right.transitions_to(left)


def two_forced():
    class Forced(StateGraph):
        one = State(force_initial=True)
        other = State(force_initial=True)


def no_handler():
    class Silent(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)


def misnamed_handler():
    class Misnamed(StateGraph):
        opened = State(try_interval=1, handler_name="work")
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


def no_interval():
    class Restless(StateGraph):
        opened = State()
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


def terminal_handler():
    class Late(StateGraph):
        opened = State()

        @classmethod
        def handle_opened(cls, instance): ...


def instance_method():
    class Bound(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)

        def handle_opened(self, instance): ...


def handler_is_text():
    class Text(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)
        handle_opened = "closed"


def edge_to_a_name():
    class Stringly(StateGraph):
        opened = State(try_interval=1)
        opened.transitions_to("closed")


def edge_to_another_graph():
    class Foreign(StateGraph):
        opened = State(try_interval=1)
        opened.transitions_to(Parcel.sent)

        @classmethod
        def handle_opened(cls, instance): ...


def edge_to_a_state_outside():
    stray = State()

    class Stray(StateGraph):
        opened = State(try_interval=1)
        opened.transitions_to(stray)

        @classmethod
        def handle_opened(cls, instance): ...


def edge_after_the_class():
    Parcel.packed.transitions_to(Parcel.arrived)


def two_timeouts():
    class Impatient(StateGraph):
        opened = State(externally_progressed=True)
        closed = State()
        lost = State()
        opened.times_out_to(closed, 5)
        opened.times_out_to(lost, 6)


def two_failures():
    class Doomed(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        lost = State()
        opened.fails_to(closed)
        opened.fails_to(lost)

        @classmethod
        def handle_opened(cls, instance): ...


def external_failure():
    class External(StateGraph):
        opened = State(externally_progressed=True)
        closed = State()
        opened.fails_to(closed)


def shared_state():
    class Shared(StateGraph):
        opened = State()
        closed = opened


def parents_state():
    class Borrowed(StateGraph):
        packed = Parcel.packed


def reserved_name():
    class Reserved(StateGraph):
        choices = State()


def two_graphs():
    class Both(Parcel, StepGraph):
        pass


def long_name():
    type("Long", (StateGraph,), {"x" * 101: State()})


def renamed_from_itself():
    class Circular(StateGraph):
        opened = State(renamed_from="opened")


def renamed_twice():
    class Twice(StateGraph):
        opened = State(externally_progressed=True, renamed_from="old")
        closed = State(renamed_from="old")
        opened.transitions_to(closed)


def initial_by_the_framework():
    class Sealed(StateGraph):
        opened = State(try_interval=1, enter_by_hand=False)
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


def unreachable_by_the_framework():
    class Sealed(StateGraph):
        opened = State(externally_progressed=True, force_initial=True)
        closed = State()
        lost = State(externally_progressed=True, enter_by_hand=False)
        opened.transitions_to(closed)
        lost.transitions_to(lost, closed)


def valued(**values):
    class Valued(StateGraph):
        opened = State(value=values.get("opened"), externally_progressed=True)
        closed = State(value=values.get("closed"))
        opened.transitions_to(closed)


def same_value():
    valued(opened=1, closed=1)


def value_that_is_a_name():
    valued(opened="closed", closed="c")


def integer_and_name():
    valued(opened=1)


def text_and_integer():
    valued(opened="o", closed=2)


BAD_GRAPHS = [
    (same_value, "Valued.closed: value=1 is also that of opened", "give each state a value of its own"),
    (value_that_is_a_name, "Valued.opened: value='closed' is the name of another state", "choose another value"),
    (integer_and_name, "Valued.closed: value='closed' and opened: value=1", "give every state an integer, or none"),
    (text_and_integer, "Valued.closed: value=2 and opened: value='o'", "give every state an integer, or none"),
    (nothing, "Nothing has no states", "add at least one: name = State()"),
    (two_initial, "Two has more than one initial state: one, other", "set force_initial=True on one"),
    (ring, "Ring has no initial state", "set force_initial=True on one, perhaps on left, which is declared first"),
    (two_forced, "Forced has more than one initial state: one, other", "force_initial"),
    (no_handler, "Silent.opened: has no handler", "add a classmethod handle_opened(cls, instance)"),
    (misnamed_handler, "Misnamed.opened: has no handler", "add a classmethod work(cls, instance)"),
    (no_interval, "Restless.opened: has no try_interval", "set try_interval=SECONDS"),
    (
        terminal_handler,
        "Late.opened: a terminal state has no handler",
        "remove handle_opened() or declare a transition",
    ),
    (instance_method, "Bound.opened: handler handle_opened", "lacks @classmethod"),
    (handler_is_text, "Text.opened: handler handle_opened is not callable", "make it a classmethod"),
    (edge_to_a_name, "transitions_to() takes a State of the same graph, not 'closed'", "define the state above"),
    (edge_to_another_graph, "Foreign.opened.transitions_to('sent')", "define both states in the same class"),
    (edge_to_a_state_outside, "Stray.opened.transitions_to(", "define both states in the same class"),
    (edge_after_the_class, "Parcel.packed: the graph is complete", "inside the class body, or subclass the graph"),
    (two_timeouts, "Impatient.opened: times_out_to(closed) is set already", "remove one of them"),
    (two_failures, "Doomed.opened: fails_to(closed) is set already", "remove one of them"),
    (external_failure, "External.opened: is never attempted, so it cannot fail", "remove fails_to()"),
    (shared_state, "Shared.closed: the same State object is also 'opened'", "a State() of its own"),
    (parents_state, "Borrowed.packed: the same State object is also 'packed'", "a State() of its own"),
    (reserved_name, "Reserved: 'choices' is reserved by StateGraph", "choose another name"),
    (two_graphs, "Both: has two graphs as bases", "inherit from one"),
    (long_name, f"Long.{'x' * 101}: the name is too long; use at most 100 characters", "at most 100"),
    (renamed_from_itself, "Circular.opened: renamed_from='opened' is taken", "name a state that no longer exists"),
    (
        initial_by_the_framework,
        "Sealed.opened: new objects are created in the initial state",
        "remove enter_by_hand=False",
    ),
    (unreachable_by_the_framework, "Sealed.lost: no edge leads here", "declare one, or remove enter_by_hand=False"),
    (renamed_twice, "Twice.closed: renamed_from='old' is taken", "name a state that no longer exists"),
]


@pytest.mark.parametrize(("declare", "what", "remedy"), BAD_GRAPHS, ids=lambda value: getattr(value, "__name__", None))
def test_wrong_graph_fails_when_the_class_is_made_naming_graph_state_and_remedy(declare, what, remedy):
    with pytest.raises(GraphError) as caught:
        declare()
    text = str(caught.value)
    assert what in text
    assert remedy in text
    assert "\n" not in text
    assert isinstance(caught.value, ValueError)


OWN_NAMES = sorted({name for name in dir(StateGraph) if not name.startswith("__")} | {*RESERVED, "mro", "__doc__"})


@pytest.mark.parametrize("name", OWN_NAMES)
def test_state_under_the_name_of_an_own_attribute_is_refused(name):
    for value in (State(), *([None, "x"] if name in RESERVED else [])):
        with pytest.raises(GraphError, match=f"Reserved: '{name}' is reserved by StateGraph; choose another name"):
            type("Reserved", (StateGraph,), {name: value, "opened": State()})


def test_a_graph_that_is_refused_leaves_its_parent_as_it_was():
    before = {name: set(state.children) for name, state in Parcel.states.items()}
    with pytest.raises(GraphError):

        class Broken(Parcel):
            extra = State()
            Parcel.packed.transitions_to(extra)
            other = State()

    assert {name: set(state.children) for name, state in Parcel.states.items()} == before
    assert len(Parcel.edges) == 6


# One state and its edges: a timeout that cannot be


def timeout(seconds):
    class Timed(StateGraph):
        opened = State(externally_progressed=True)
        closed = State()
        opened.times_out_to(closed, seconds=seconds)


@pytest.mark.parametrize("seconds", [0, -1, None, "5", float("nan"), float("inf"), 1e18])
def test_wrong_timeout_names_the_edge(seconds):
    with pytest.raises(GraphError, match=r"^Timed\.opened\.times_out_to\(closed\): seconds=.* must be a number"):
        timeout(seconds)


# Options of a state: each wrong value gets one line with graph, state, option and what is wanted


def option(**options):
    class Optional(StateGraph):
        opened = State(**({"try_interval": 1} | options))
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


BAD_OPTIONS = [
    ({"value": True}, "an integer of 64 bits, or a text of at most 100 characters"),
    ({"value": 1.0}, "an integer"),
    ({"value": 2**63}, "an integer of 64 bits"),
    ({"value": "x" * 101}, "at most 100 characters"),
    ({"value": "a\0"}, "a text of at most"),
    ({"value": []}, "an integer"),
    ({"label": 5}, "a text"),
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
    ({"backoff": Backoff(jitter=1.5)}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(jitter=True)}, "seconds above 0, a Backoff"),
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
