"""Graphs that may not be declared: each mistake gets one line."""

import re

import pytest

from stator.exceptions import GraphError
from stator.graph.backoff import Backoff
from stator.graph.graphs import RESERVED, State, StateGraph
from tests.stator.graph.parcels import Parcel
from tests.testapp.basic import StepGraph


def graph(name, *edges, handlers="", **members):
    """A graph as a class statement makes it. Dictionaries: options of states. Edges: ``from method to``, and more."""
    made = {key: State(**value) if isinstance(value, dict) else value for key, value in members.items()}
    for edge in edges:
        source, method, target, *further = edge.split() if isinstance(edge, str) else edge
        getattr(made[source], method)(made[target] if isinstance(target, str) and target in made else target, *further)
    made |= {handler: classmethod(lambda cls, instance: None) for handler in handlers.split()}
    return type(name, (StateGraph,), made)


OUTSIDE, ATTEMPTED = {"externally_progressed": True}, {"try_interval": 1}
CLOSES, HANDLER = "opened transitions_to closed", "handle_opened"
BOTH = {"opened": ATTEMPTED, "closed": {}}


def valued(**values):
    return graph("Valued", CLOSES, **{name: {"value": value, **OUTSIDE} for name, value in values.items()})


def when(condition):
    new, done = State(), State()
    return graph("Wrong", new=new, done=done, edge=new.when(condition).to(done))


BAD_GRAPHS = {
    "same value": (
        lambda: valued(opened=1, closed=1), "Valued.closed: value=1 is also that of opened",
        "give each state a value of its own",
    ),
    "value that is a name": (
        lambda: valued(opened="closed", closed="c"), "Valued.opened: value='closed' is the name of another state",
        "choose another value",
    ),
    "integer and name": (
        lambda: valued(opened=1, closed=None), "Valued.closed: value='closed' and opened: value=1",
        "give every state an integer, or none",
    ),
    "nothing": (lambda: graph("Nothing"), "Nothing has no states", "add at least one: name = State()"),
    "two initial": (
        lambda: graph("Two", one={}, other={}), "Two has more than one initial state: one, other",
        "set force_initial=True on one",
    ),
    "ring": (
        lambda: graph("Ring", "left transitions_to right", "right transitions_to left", left=OUTSIDE, right=OUTSIDE),
        "Ring has no initial state", "set force_initial=True on one, perhaps on left, which is declared first",
    ),
    "no handler": (
        lambda: graph("Silent", CLOSES, **BOTH), "Silent.opened: has no handler",
        "add a classmethod handle_opened(cls, instance)",
    ),
    "no interval": (
        lambda: graph("Restless", CLOSES, handlers=HANDLER, opened={}, closed={}),
        "Restless.opened: has no try_interval", "set try_interval=SECONDS",
    ),
    "terminal handler": (
        lambda: graph("Late", handlers=HANDLER, opened={}), "Late.opened: a terminal state has no handler",
        "remove handle_opened() or declare a transition",
    ),
    "instance method": (
        lambda: graph("Bound", CLOSES, **BOTH, handle_opened=lambda self, instance: None),
        "Bound.opened: handler handle_opened", "lacks @classmethod",
    ),
    "handler is text": (
        lambda: graph("Text", CLOSES, **BOTH, handle_opened="closed"),
        "Text.opened: handler handle_opened is not callable", "make it a classmethod",
    ),
    "edge to a name": (
        lambda: graph("Stringly", CLOSES, opened=ATTEMPTED),
        "transitions_to() takes a State of the same graph, not 'closed'", "define the state above",
    ),
    "edge to another graph": (
        lambda: graph("Foreign", ("opened", "transitions_to", Parcel.sent), handlers=HANDLER, opened=ATTEMPTED),
        "Foreign.opened.transitions_to('sent')", "define both states in the same class",
    ),
    "edge after the class": (
        lambda: Parcel.packed.transitions_to(Parcel.arrived), "Parcel.packed: the graph is complete",
        "inside the class body, or subclass the graph",
    ),
    "two timeouts": (
        lambda: graph(
            "Impatient", ("opened", "times_out_to", "closed", 5), ("opened", "times_out_to", "lost", 6),
            opened=OUTSIDE, closed={}, lost={},
        ),
        "Impatient.opened: times_out_to(closed) is set already", "remove one of them",
    ),
    "external failure": (
        lambda: graph("External", "opened fails_to closed", opened=OUTSIDE, closed={}),
        "External.opened: is never attempted, so it cannot fail", "remove fails_to()",
    ),
    "shared state": (
        lambda: graph("Shared", opened=(one := State()), closed=one),
        "Shared.closed: the same State object is also 'opened'", "a State() of its own",
    ),
    "reserved name": (
        lambda: graph("Reserved", choices={}), "Reserved: 'choices' is reserved by StateGraph", "choose another name",
    ),
    "two graphs": (lambda: type("Both", (Parcel, StepGraph), {}), "Both: has two graphs as bases", "inherit from one"),
    "long name": (
        lambda: graph("Long", **{"x" * 101: {}}), f"Long.{'x' * 101}: the name is too long; use at most 100 characters",
        "at most 100",
    ),
    "renamed from itself": (
        lambda: graph("Circular", opened={"renamed_from": "opened"}), "Circular.opened: renamed_from='opened' is taken",
        "name a state that no longer exists",
    ),
    "renamed twice": (
        lambda: graph("Twice", CLOSES, opened={"renamed_from": "old", **OUTSIDE}, closed={"renamed_from": "old"}),
        "Twice.closed: renamed_from='old' is taken", "name a state that no longer exists",
    ),
    "initial by the framework": (
        lambda: graph("Sealed", CLOSES, handlers=HANDLER, opened={"enter_by_hand": False, **ATTEMPTED}, closed={}),
        "Sealed.opened: new objects are created in the initial state", "remove enter_by_hand=False",
    ),
    "unreachable by the framework": (
        lambda: graph(
            "Sealed", CLOSES, "lost transitions_to lost", "lost transitions_to closed", closed={},
            opened={"force_initial": True, **OUTSIDE}, lost={"enter_by_hand": False, **OUTSIDE},
        ),
        "Sealed.lost: no edge leads here", "declare one, or remove enter_by_hand=False",
    ),
    **{
        f"condition {value!r}": (lambda value=value: when(value), "Wrong.new.when(", "takes a condition, such as Q")
        for value in ("paid", None, 3, ("amount", 3))
    },
}  # fmt: skip


@pytest.mark.parametrize(("declare", "what", "remedy"), BAD_GRAPHS.values(), ids=BAD_GRAPHS)
def test_wrong_graph_fails_when_the_class_is_made_naming_graph_state_and_remedy(declare, what, remedy):
    with pytest.raises(GraphError) as caught:
        declare()
    text = str(caught.value)
    assert what in text
    assert remedy in text
    assert "\n" not in text
    assert isinstance(caught.value, ValueError)


OWN_NAMES = sorted({name for name in dir(StateGraph) if not name.startswith("__")} | {*RESERVED, "mro", "__doc__"})


def test_state_under_the_name_of_an_own_attribute_is_refused():
    for name in OWN_NAMES:
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


def test_wrong_timeout_names_the_edge():
    for seconds in (0, -1, None, "5", float("nan"), float("inf"), 1e18, 10**400):
        with pytest.raises(GraphError, match=r"^Timed\.opened\.times_out_to\(closed\): seconds=.* must be a number"):
            graph("Timed", ("opened", "times_out_to", "closed", seconds), opened=OUTSIDE, closed={})


# Options of a state: each wrong value gets one line with graph, state, option and what is wanted


BAD_BACKOFFS = [{"base": -1}, {"factor": 0.5}, {"jitter": 1.5}, {"jitter": True}]
BAD_OPTIONS = [
    *(
        ({"value": value}, "an integer of 64 bits, or a text of at most 100")
        for value in (True, 1.0, 2**63, "x" * 101, [])
    ),
    ({"value": "a\0"}, "a text of at most"),
    ({"label": 5}, "a text"),
    *(({"try_interval": seconds}, "seconds above 0") for seconds in (0, "60", float("nan"), 1e18)),
    ({"handler_name": "not a name"}, "the name of a method"),
    *(({name: "no"}, "True or False") for name in ("externally_progressed", "attempt_immediately", "force_initial")),
    *(({name: None}, "True or False") for name in ("enter_by_hand", "leave_by_hand", "quarantine", "atomic")),
    ({"delete_after": 0}, "seconds above 0"),
    ({"jitter": 1}, "a fraction"),
    ({"backoff": "slow"}, "seconds above 0, a Backoff"),
    *(({"backoff": Backoff(**given)}, "seconds above 0, a Backoff") for given in BAD_BACKOFFS),
    ({"max_failures": 0}, "a whole number"),
    ({"max_runtime": -5}, "seconds above 0"),
    ({"lease": "long"}, "seconds above 0"),
    ({"expect_within": 0}, "seconds above 0"),
    ({"renamed_from": ""}, "the former name"),
    ({"saves": "result"}, "a list of names of fields"),
    ({"batch": 0}, "a whole number"),
    ({"concurrency": -1}, "a whole number"),  # stator.extensions.limits
]


@pytest.mark.parametrize(("options", "wanted"), BAD_OPTIONS, ids=str)
def test_wrong_option_names_graph_state_option_value_and_what_is_wanted(options, wanted):
    ((name, value),) = options.items()
    with pytest.raises(GraphError, match=re.escape(f"Optional.opened: {name}={value!r} must be ")) as caught:
        graph("Optional", CLOSES, handlers=HANDLER, opened=ATTEMPTED | options, closed={})
    assert wanted in str(caught.value)


def test_unknown_option_names_the_nearest():
    with pytest.raises(TypeError, match="no option 'try_intervall'; did you mean 'try_interval'"):
        State(try_intervall=5)
    with pytest.raises(TypeError, match="no option 'zzz'; options are atomic, attempt_immediately, backoff"):
        State(zzz=5)
