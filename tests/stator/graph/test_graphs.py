"""Graphs that may be declared, and the states and edges that they get."""

import pickle
from copy import deepcopy

from stator.graph.graphs import State, StateGraph
from tests.stator.graph.parcels import Parcel
from tests.testapp.basic import StepGraph


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


def test_graph_knows_initial_terminal_and_automatic_states():
    assert list(Parcel.states) == ["packed", "sent", "lost", "arrived", "returned"]
    assert Parcel.choices == [(name, name.capitalize()) for name in Parcel.states]
    assert Parcel.initial_state is Parcel.packed
    assert names(Parcel.terminal_states) == {"arrived", "returned"}
    assert names(Parcel.automatic_states) == {"packed", "sent"}


def test_every_kind_of_edge_leads_somewhere():
    assert names(Parcel.sent.children) == {"arrived", "lost", "returned"}
    assert names(Parcel.returned.parents) == {"sent", "lost"}
    assert (Parcel.sent.timeout_state, Parcel.sent.timeout_value) == (Parcel.lost, 86400)
    assert (Parcel.sent.failure_state, Parcel.packed.timeout_state) == (Parcel.returned, None)
    assert [f"{edge.state} {edge.kind} {edge.other}" for edge in Parcel.edges] == [
        "packed transitions_to sent", "sent transitions_to arrived", "sent transitions_to lost",
        "sent times_out_to lost", "sent fails_to returned", "lost times_out_to returned",
    ]  # fmt: skip


def test_state_equals_prints_and_hashes_like_its_name():
    state = Parcel.packed
    assert state == "packed"
    assert state != "sent"
    assert state != Parcel.sent
    assert (str(state), f"{state}", len(state), repr(state)) == ("packed", "packed", 6, "<State packed>")
    assert {"packed": 1}[state] == 1
    assert ["packed"].index(state) == 0


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


def test_subclass_inherits_adds_and_replaces_and_its_parent_does_not_change():
    assert list(InsuredParcel.states) == ["packed", "sent", "lost", "arrived", "returned", "insured", "refunded"]
    assert InsuredParcel.packed.handler(None) is InsuredParcel.sent
    assert InsuredParcel.initial_state is InsuredParcel.packed
    assert InsuredParcel.sent.timeout_value == 86400
    assert not InsuredParcel.sent.is_async
    assert InsuredParcel.sent.handler(None) is InsuredParcel.lost
    assert names(InsuredParcel.lost.children) == {"insured", "returned"}
    assert names(InsuredParcel.insured.children) == {"refunded", "returned"}
    assert {state.graph for state in (InsuredParcel.packed, *InsuredParcel.insured.children)} == {InsuredParcel}
    assert names(Parcel.lost.children) == {"returned"}
    assert names(Parcel.returned.parents) == {"sent", "lost"}
    assert Parcel.packed.graph is Parcel
    assert not hasattr(Parcel, "insured")


def test_subclass_replaces_a_state_and_keeps_its_edges():
    class Patient(Parcel):
        sent = State(try_interval=600)

    assert Patient.sent.try_interval == 600
    assert names(Patient.sent.children) == {"arrived", "lost", "returned"}
    assert Parcel.sent.try_interval == 60


def test_force_initial_chooses_among_states_that_lead_to_each_other():
    """And wins over a state that nothing leads to."""

    class Ring(StateGraph):
        left = State(externally_progressed=True)
        right = State(externally_progressed=True, force_initial=True)
        left.transitions_to(right)
        right.transitions_to(left)

    assert Ring.initial_state is Ring.right

    class Legacy(StateGraph):
        old = State(externally_progressed=True)
        new = State(externally_progressed=True, force_initial=True)
        done = State()
        old.transitions_to(done)
        new.transitions_to(done)

    assert Legacy.initial_state is Legacy.new
    assert [state.name for state in Legacy.states.values() if state.initial] == ["new"]


def test_state_survives_copying_and_pickling_as_itself():
    assert deepcopy(StepGraph.new) is StepGraph.new
    assert pickle.loads(pickle.dumps(StepGraph.new)) is StepGraph.new
