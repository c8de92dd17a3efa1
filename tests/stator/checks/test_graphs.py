"""Warnings about graphs that are valid but doubtful."""

from itertools import pairwise
from typing import Any

import pytest

from stator.checks import graphs
from stator.graph import State, StateGraph


def handler(cls: Any, row: Any) -> None: ...


def graph(name: str = "ThatGraph", **members: Any) -> type[StateGraph]:
    """A graph with a handler for each automatic state."""
    states = {key: value for key, value in members.items() if isinstance(value, State)}
    handlers = {
        f"handle_{key}": classmethod(handler)
        for key, state in states.items()
        if not state.externally_progressed and any(edge.state is state for edge in state.edges)
    }
    return type(name, (StateGraph,), {**handlers, **members})


def chain(*states: State) -> tuple[State, ...]:
    for state, following in pairwise(states):
        state.transitions_to(following)
    return states


def found(look: Any, made: type[StateGraph]) -> list[str]:
    return [f"{made.__name__}{message}" for _, message, _ in look(made)]


class TestGraphs:
    def test_messages_have_numbers_and_hints(self) -> None:
        class Model:
            state_graph = graph(a=(a := State(try_interval=1, max_failures=3)), b=(b := State()), _edge=chain(a, b))  # type: ignore[name-defined]

        [warning] = graphs.check_graph(Model)
        assert (warning.id, warning.obj) == ("stator.W206", Model)
        assert warning.msg == "ThatGraph.a has max_failures=3 and no fails_to."
        assert "a.fails_to" in warning.hint

    def test_state_that_cannot_be_reached_is_a_warning(self) -> None:
        a, b, c, d = (State(try_interval=1, force_initial=True), State(), State(try_interval=1), State())
        chain(a, b), chain(c, d)
        assert found(graphs.unreachable, graph(a=a, b=b, c=c, d=d)) == [
            "ThatGraph.c cannot be reached from a.",
            "ThatGraph.d cannot be reached from a.",
        ]

    def test_loop_without_a_way_out_is_a_warning(self) -> None:
        a, b, c, d = (State(try_interval=1), State(try_interval=1), State(try_interval=1), State())
        chain(a, b, c, b), chain(a, d)
        assert found(graphs.dead_end, graph(a=a, b=b, c=c, d=d)) == [
            "ThatGraph.b leads to no terminal or external state: its objects are attempted for ever.",
            "ThatGraph.c leads to no terminal or external state: its objects are attempted for ever.",
        ]

    @pytest.mark.parametrize(
        ("one", "other", "warned"),
        [
            (State(try_interval=0.1, force_initial=True), State(try_interval=0.1), True),
            (State(try_interval=0.1, force_initial=True), State(try_interval=60), False),
            (State(try_interval=0.1, force_initial=True), State(externally_progressed=True), False),
        ],
    )
    def test_loops_without_delay(self, one: State, other: State, warned: bool) -> None:
        chain(one, other, one)
        expected = [
            "ThatGraph.one is part of a loop without delay.",
            "ThatGraph.other is part of a loop without delay.",
        ]
        assert found(graphs.busy_loop, graph(one=one, other=other)) == (expected if warned else [])

    @pytest.mark.parametrize(("seconds", "warned"), [(59, True), (60, False), (600, False)])
    def test_timeouts_before_the_second_attempt(self, seconds: float, warned: bool) -> None:
        a, b = State(try_interval=60), State()
        a.times_out_to(b, seconds=seconds)
        message = f"ThatGraph.a times out after {seconds} s, before its try_interval of 60 s."
        assert found(graphs.early_timeout, graph(a=a, b=b)) == ([message] if warned else [])

    @pytest.mark.parametrize(("lease", "warned"), [(5, True), (6, False), (None, False)])
    def test_lease_that_is_too_short_is_a_warning(self, lease: float | None, warned: bool) -> None:
        a, b = chain(State(try_interval=60, lease=lease), State())
        message = f"ThatGraph.a has a lease of {lease} s, not longer than REAP_INTERVAL=5."
        assert found(graphs.short_lease, graph(a=a, b=b)) == ([message] if warned else [])

    def test_failures_that_lead_nowhere(self) -> None:
        a, b, c = State(try_interval=1, max_failures=2), State(try_interval=1, max_failures=3), State()
        chain(a, b, c)
        b.fails_to(c)
        assert found(graphs.failures_to_nowhere, graph(a=a, b=b, c=c)) == [
            "ThatGraph.a has max_failures=2 and no fails_to."
        ]

    def test_handlers_of_no_state(self) -> None:
        a, b = chain(State(try_interval=1), State(try_interval=1, handler_name="handle_other"))
        b.transitions_to(end := State())
        made = graph(
            paid=a, unpaid=b, end=end, handle_payed=classmethod(handler), handle_xyz=classmethod(handler),
            handle_other=classmethod(handler), handle_paid=classmethod(handler), handle_unpaid=None,
        )  # fmt: skip
        hints = {message: hint for _, message, hint in graphs.stray_handlers(made)}
        assert list(hints) == [
            ".handle_payed is not the handler of any state.",
            ".handle_xyz is not the handler of any state.",
        ]
        assert hints[".handle_payed is not the handler of any state."].endswith("Did you mean handle_paid?")
        assert hints[".handle_xyz is not the handler of any state."].endswith("handler_name=.")

    def test_permission_of_an_event_that_no_model_has_is_a_warning(self) -> None:
        a, b = State(externally_progressed=True), State()
        a.on("approve", permission="testapp.chnage_expense").to(b)
        a.on("reject", permission="testapp.change_expense").to(b)
        a.on("force", permission="testapp.force_expense").to(b)
        made = graph(a=a, b=b)
        assert found(graphs.unsendable, made) == [
            "ThatGraph.a.on('approve') needs the permission 'testapp.chnage_expense', which no model has."
        ]
        [(_, _, hint)] = graphs.unsendable(made)
        assert "Did you mean 'testapp.change_expense'?" in hint
