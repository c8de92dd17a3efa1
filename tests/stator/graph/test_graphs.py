"""What may be declared, what a declaration comes to, and the one line that every mistake gets."""

import pickle
import re
from copy import deepcopy

import pytest

import stator
import stator.graph
import stator.models
from stator.exceptions import GraphError
from stator.graph.backoff import Backoff
from stator.graph.graphs import State, StateGraph
from stator.graph.options import OPTIONS
from tests.testapp.basic import StepGraph


class Parcel(StateGraph):
    packed = State(try_interval=60)
    sent = State(try_interval=60)
    lost = State(externally_progressed=True)
    arrived = State()
    returned = State()

    packed.transitions_to(sent)
    sent.transitions_to(arrived, lost)
    sent.times_out_to(lost, seconds=86400)
    sent.fails_to(returned)
    lost.times_out_to(returned, 3600)

    carrier = "post"
    limit: int = 3

    @classmethod
    def handle_packed(cls, instance):
        return cls.sent

    @classmethod
    async def handle_sent(cls, instance):
        return cls.arrived

    @classmethod
    def weigh(cls, instance):
        return cls.limit

    @staticmethod
    def price(weight):
        return weight * 2


class InsuredParcel(Parcel):
    insured = State(try_interval=5)
    refunded = State()

    Parcel.lost.transitions_to(insured)
    insured.transitions_to(refunded, Parcel.returned)

    @classmethod
    def handle_sent(cls, instance):
        return cls.lost

    @classmethod
    def handle_insured(cls, instance):
        return cls.refunded


def names(states):
    return {state.name for state in states}


def test_state_and_state_graph_are_importable_from_three_places():
    assert stator.State is stator.graph.State is stator.models.State is State
    assert stator.StateGraph is stator.graph.StateGraph is stator.models.StateGraph is StateGraph


def test_graph_lists_its_states_in_the_order_of_their_declaration():
    assert list(Parcel.states) == ["packed", "sent", "lost", "arrived", "returned"]
    assert Parcel.choices == [(name, name) for name in Parcel.states]


def test_graph_knows_initial_terminal_and_automatic_states():
    assert Parcel.initial_state is Parcel.packed
    assert names(Parcel.terminal_states) == {"arrived", "returned"}
    assert names(Parcel.automatic_states) == {"packed", "sent"}


def test_every_kind_of_edge_leads_somewhere():
    assert names(Parcel.sent.children) == {"arrived", "lost", "returned"}
    assert names(Parcel.returned.parents) == {"sent", "lost"}
    assert Parcel.sent.timeout_state is Parcel.lost
    assert Parcel.sent.timeout_value == 86400
    assert Parcel.lost.timeout_value == 3600
    assert Parcel.sent.failure_state is Parcel.returned
    assert Parcel.packed.timeout_state is None
    assert [(edge.kind, str(edge.state), str(edge.other)) for edge in Parcel.edges] == [
        ("transitions_to", "packed", "sent"),
        ("transitions_to", "sent", "arrived"),
        ("transitions_to", "sent", "lost"),
        ("times_out_to", "sent", "lost"),
        ("fails_to", "sent", "returned"),
        ("times_out_to", "lost", "returned"),
    ]


def test_terminal_and_external_states_are_not_automatic():
    assert Parcel.arrived.terminal
    assert not Parcel.arrived.automatic
    assert Parcel.arrived.externally_progressed
    assert not Parcel.lost.terminal
    assert not Parcel.lost.automatic


def test_state_equals_prints_and_hashes_like_its_name():
    state = Parcel.packed
    assert state == "packed"
    assert state.__eq__("packed") is True
    assert ["packed"].index(state) == 0
    assert state != "sent"
    assert state != Parcel.sent
    assert str(state) == "packed"
    assert f"{state}" == "packed"
    assert hash(state) == hash("packed")
    assert {"packed": 1}[state] == 1
    assert state in {"packed", "sent"}
    assert len(state) == 6
    assert repr(state) == "<State packed>"


def test_states_of_two_graphs_differ_even_under_one_name():
    assert Parcel.packed != InsuredParcel.packed
    assert InsuredParcel.packed == "packed"


def test_handler_is_bound_to_the_graph_and_may_be_either_kind():
    assert Parcel.packed.handler(None) is Parcel.sent
    assert not Parcel.packed.is_async
    assert Parcel.sent.is_async


def test_handler_may_have_any_name():
    class Named(StateGraph):
        opened = State(try_interval=1, handler_name="work")
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def work(cls, instance):
            return cls.closed

    assert Named.opened.handler(None) is Named.closed


def test_handler_may_be_an_object_whose_call_is_a_coroutine():
    class Call:
        async def __call__(self, instance):
            return "closed"

    class Called(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)
        handle_opened = Call()

    assert Called.opened.is_async


def test_handler_may_be_a_static_method():
    class Static(StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)

        @staticmethod
        def handle_opened(instance):
            return "closed"

    assert Static.opened.handler(None) == "closed"


def test_other_attributes_annotations_and_methods_are_fine():
    assert Parcel.carrier == "post"
    assert Parcel.weigh(None) == 3
    assert Parcel.price(2) == 4


def test_subclass_inherits_states_edges_and_handlers():
    assert list(InsuredParcel.states) == ["packed", "sent", "lost", "arrived", "returned", "insured", "refunded"]
    assert InsuredParcel.packed.handler(None) is InsuredParcel.sent
    assert InsuredParcel.initial_state is InsuredParcel.packed
    assert InsuredParcel.sent.timeout_value == 86400
    assert InsuredParcel.packed.graph is InsuredParcel


def test_subclass_adds_edges_between_inherited_and_new_states():
    assert names(InsuredParcel.lost.children) == {"insured", "returned"}
    assert names(InsuredParcel.insured.children) == {"refunded", "returned"}
    assert all(child.graph is InsuredParcel for child in InsuredParcel.insured.children)


def test_parent_graph_does_not_change_with_its_subclass():
    assert names(Parcel.lost.children) == {"returned"}
    assert names(Parcel.returned.parents) == {"sent", "lost"}
    assert Parcel.packed.graph is Parcel
    assert not hasattr(Parcel, "insured")


def test_subclass_replaces_a_handler():
    assert not InsuredParcel.sent.is_async
    assert InsuredParcel.sent.handler(None) is InsuredParcel.lost


def test_subclass_replaces_a_state_and_keeps_its_edges():
    class Patient(Parcel):
        sent = State(try_interval=600)

    assert Patient.sent.try_interval == 600
    assert names(Patient.sent.children) == {"arrived", "lost", "returned"}
    assert Parcel.sent.try_interval == 60


def test_subclass_of_a_subclass_sees_both():
    class Grandchild(InsuredParcel):
        extra = State()
        InsuredParcel.insured.transitions_to(extra)

    assert names(Grandchild.insured.children) == {"refunded", "returned", "extra"}
    assert names(Grandchild.packed.children) == {"sent"}


def test_subclass_leads_on_from_what_was_terminal():
    class Reopened(Parcel):
        reviewed = State()
        Parcel.arrived.transitions_to(reviewed)
        arrived = State(externally_progressed=True)

    assert not Reopened.arrived.terminal
    assert Parcel.arrived.terminal


def test_handlers_may_come_from_a_mixin_that_is_no_graph():
    class Handlers:
        @classmethod
        def handle_opened(cls, instance):
            return cls.closed

    class Mixed(Handlers, StateGraph):
        opened = State(try_interval=1)
        closed = State()
        opened.transitions_to(closed)

    assert Mixed.opened.handler(None) is Mixed.closed


def test_single_state_is_initial_and_terminal():
    class Lone(StateGraph):
        here = State()

    assert Lone.initial_state is Lone.here
    assert Lone.terminal_states == {Lone.here}
    assert Lone.automatic_states == set()


def test_state_may_lead_to_itself():
    class Loop(StateGraph):
        here = State(try_interval=1)
        here.transitions_to(here)

        @classmethod
        def handle_here(cls, instance):
            return cls.here

    assert Loop.initial_state is Loop.here
    assert Loop.automatic_states == {Loop.here}


def test_force_initial_chooses_among_states_that_lead_to_each_other():
    class Ring(StateGraph):
        left = State(externally_progressed=True)
        right = State(externally_progressed=True, force_initial=True)
        left.transitions_to(right)
        right.transitions_to(left)

    assert Ring.initial_state is Ring.right


def test_force_initial_wins_over_a_state_that_nothing_leads_to():
    class Legacy(StateGraph):
        old = State(externally_progressed=True)
        new = State(externally_progressed=True, force_initial=True)
        done = State()
        old.transitions_to(done)
        new.transitions_to(done)

    assert Legacy.initial_state is Legacy.new
    assert [state.name for state in Legacy.states.values() if state.initial] == ["new"]


def test_external_state_may_have_a_handler_that_nothing_runs():
    class Outside(StateGraph):
        waiting = State(externally_progressed=True)
        done = State()
        waiting.transitions_to(done)

        @classmethod
        def handle_waiting(cls, instance):
            raise AssertionError

    assert Outside.automatic_states == set()


def test_subclass_inherits_that_only_the_framework_enters_a_state():
    class Sealed(StateGraph):
        opened = State(externally_progressed=True)
        closed = State(enter_by_hand=False)
        opened.times_out_to(closed, seconds=60)

    class Below(Sealed):
        again = State()
        Sealed.opened.transitions_to(again)

    assert [state.enter_by_hand for state in Below.states.values()] == [True, False, True]


def test_renamed_from_is_listed():
    assert StepGraph.renames == {"older": StepGraph.renewed}


def test_state_survives_copying_and_pickling_as_itself():
    assert deepcopy(StepGraph.new) is StepGraph.new
    assert pickle.loads(pickle.dumps(StepGraph.new)) is StepGraph.new


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


def timeout(seconds):
    class Timed(StateGraph):
        opened = State(externally_progressed=True)
        closed = State()
        opened.times_out_to(closed, seconds=seconds)


def option(**options):
    class Optional(StateGraph):
        opened = State(**({"try_interval": 1} | options))
        closed = State()
        opened.transitions_to(closed)

        @classmethod
        def handle_opened(cls, instance): ...


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


BAD_GRAPHS = [
    (nothing, "Nothing has no states", "add at least one: name = State()"),
    (two_initial, "Two has more than one initial state: one, other", "set force_initial=True on one"),
    (ring, "Ring has no initial state", "set force_initial=True on one"),
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
    (two_timeouts, "Impatient.opened: times_out_to(closed) is set already", "remove the other"),
    (two_failures, "Doomed.opened: fails_to(closed) is set already", "remove the other"),
    (external_failure, "External.opened: is never attempted, so it cannot fail", "remove fails_to()"),
    (shared_state, "Shared.closed: the same State object is also 'opened'", "a State() of its own"),
    (parents_state, "Borrowed.packed: the same State object is also 'packed'", "a State() of its own"),
    (reserved_name, "Reserved: 'choices' is reserved by StateGraph", "choose another name"),
    (two_graphs, "Both: has two graphs as bases", "inherit from one"),
    (long_name, f"Long.{'x' * 101}: a state's name has at most 100 characters", "at most 100"),
    (renamed_from_itself, "Circular.opened: renamed_from='opened' is taken", "name a state that is gone"),
    (initial_by_the_framework, "Sealed.opened: new objects enter the initial state", "remove enter_by_hand=False"),
    (unreachable_by_the_framework, "Sealed.lost: nothing enters it", "lead to it, or remove enter_by_hand=False"),
    (renamed_twice, "Twice.closed: renamed_from='old' is taken", "name a state that is gone"),
]

BAD_OPTIONS = [
    ({"try_interval": 0}, "seconds above 0"),
    ({"try_interval": -1}, "seconds above 0"),
    ({"try_interval": "60"}, "seconds above 0"),
    ({"try_interval": True}, "seconds above 0"),
    ({"try_interval": float("nan")}, "seconds above 0"),
    ({"try_interval": float("inf")}, "seconds above 0"),
    ({"try_interval": 1e18}, "seconds above 0"),
    ({"handler_name": 7}, "the name of a method"),
    ({"handler_name": "not a name"}, "the name of a method"),
    ({"externally_progressed": 1}, "True or False"),
    ({"attempt_immediately": "no"}, "True or False"),
    ({"force_initial": None}, "True or False"),
    ({"enter_by_hand": None}, "True or False"),
    ({"delete_after": 0}, "seconds above 0"),
    ({"jitter": 1}, "a fraction"),
    ({"jitter": -0.1}, "a fraction"),
    ({"backoff": 0}, "seconds above 0, a Backoff"),
    ({"backoff": "slow"}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(base=-1)}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(cap=0)}, "seconds above 0, a Backoff"),
    ({"backoff": Backoff(factor=0.5)}, "seconds above 0, a Backoff"),
    ({"max_failures": 0}, "a whole number"),
    ({"max_failures": 1.5}, "a whole number"),
    ({"max_runtime": -5}, "seconds above 0"),
    ({"lease": "long"}, "seconds above 0"),
    ({"expect_within": 0}, "seconds above 0"),
    ({"renamed_from": ""}, "the former name"),
    ({"quarantine": None}, "True or False"),
    ({"saves": "result"}, "a list of names of fields"),
    ({"saves": (3,)}, "a list of names of fields"),
    ({"renamed_from": 3}, "the former name"),
    ({"atomic": "yes"}, "True or False"),
    ({"batch": 0}, "a whole number"),
    ({"batch": True}, "a whole number"),
    ({"concurrency": -1}, "a whole number"),
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


@pytest.mark.parametrize(("options", "wanted"), BAD_OPTIONS, ids=str)
def test_wrong_option_names_graph_state_option_value_and_what_is_wanted(options, wanted):
    ((name, value),) = options.items()
    with pytest.raises(GraphError, match=re.escape(f"Optional.opened: {name}={value!r} must be ")) as caught:
        option(**options)
    assert wanted in str(caught.value)


def test_every_option_has_a_test_of_a_wrong_value():
    assert {name for options, _ in BAD_OPTIONS for name in options} == set(OPTIONS)


@pytest.mark.parametrize("seconds", [0, -1, None, "5", float("nan"), float("inf"), 1e18])
def test_wrong_timeout_names_the_edge(seconds):
    with pytest.raises(GraphError, match=r"^Timed\.opened\.times_out_to\(closed\): seconds=.* must be a number"):
        timeout(seconds)


def test_unknown_option_names_the_nearest():
    with pytest.raises(TypeError, match="no option 'try_intervall'; did you mean 'try_interval'"):
        State(try_intervall=5)
    with pytest.raises(TypeError, match="no option 'zzz'; options are atomic, attempt_immediately, backoff"):
        State(zzz=5)


def test_a_graph_that_is_refused_leaves_its_parent_as_it_was():
    before = {name: set(state.children) for name, state in Parcel.states.items()}
    with pytest.raises(GraphError):

        class Broken(Parcel):
            extra = State()
            Parcel.packed.transitions_to(extra)
            other = State()

    assert {name: set(state.children) for name, state in Parcel.states.items()} == before
    assert len(Parcel.edges) == 6
