"""check_graph finds what is wrong with a graph; graphs that are right pass. No database."""

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from stator.exceptions import Fail, TryAgainLater
from stator.graph import State, StateGraph
from stator.graph.backoff import MAX_SECONDS
from stator.graph.outcomes import Released, Waiting, resolve
from stator.testing import check_graph
from stator.testing_graph import certain, walks
from tests.testapp.basic import StepGraph
from tests.testapp.dated import OfferGraph
from tests.testapp.takahe import PinStates


class Errand(StateGraph):
    """Right, and with an edge of every kind."""

    new = State(try_interval=60, backoff=lambda errors: 2**errors, max_failures=3, force_initial=True)
    slow = State(try_interval=60, jitter=0.5)
    outside = State(externally_progressed=True)
    done = State()
    failed = State()

    new.transitions_to(slow, outside)
    new.fails_to(failed)
    new.times_out_to(slow, seconds=1000)
    slow.transitions_to(done, new)
    slow.times_out_to(outside, seconds=10)
    outside.transitions_to(done)
    outside.times_out_to(failed, seconds=86400)

    @classmethod
    def handle_new(cls, instance: Any) -> Any:
        return instance.work()

    @classmethod
    async def handle_slow(cls, instance: Any) -> Any:
        return cls.done


def backing_off(function: Any) -> type[StateGraph]:
    """A graph whose second state has a back-off function."""

    class Backing(StateGraph):
        new = State(try_interval=60)
        tried = State(try_interval=60, backoff=function)
        done = State()

        new.transitions_to(tried)
        tried.transitions_to(done)
        tried.fails_to(done)

        @classmethod
        def handle_new(cls, instance: Any) -> State:
            return cls.tried

        handle_tried = handle_new

    return Backing


def working(work: Any) -> Any:
    """A strategy of objects that do this when they are attempted."""
    return st.builds(lambda: SimpleNamespace(work=work, state="new"))


def problem(graph: type[StateGraph], **options: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        check_graph(graph, max_examples=20, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def raises(error: BaseException) -> Any:
    raise error


RIGHT = [Errand, StepGraph, PinStates, OfferGraph]


@pytest.mark.parametrize("graph", RIGHT, ids=lambda graph: graph.__name__)
def test_graph_that_is_right_passes(graph: type[StateGraph]) -> None:
    check_graph(graph, max_examples=3)


class TestWays:
    def test_state_that_cannot_be_reached(self) -> None:
        class Lost(StateGraph):
            new = State(externally_progressed=True, force_initial=True)
            lost = State(externally_progressed=True)
            done = State()
            new.transitions_to(done)
            lost.transitions_to(done)

        assert problem(Lost) == (
            "Lost.lost: no edge leads here from new; "
            "declare an edge to it, or name it in entries= if objects are put into it by hand"
        )
        check_graph(Lost, entries=[Lost.lost], max_examples=5)
        check_graph(Lost, entries=["lost"], max_examples=5)
        with pytest.raises(ValueError, match=r"Lost has no state 'elsewhere'; entries="):
            check_graph(Lost, entries=["elsewhere"])

    def test_trap_is_reported_with_the_shortest_path_into_it(self) -> None:
        class Trap(StateGraph):
            new = State(try_interval=60)
            detour = State(try_interval=60)
            up = State(try_interval=60)
            down = State(try_interval=60)
            done = State()
            new.transitions_to(detour, done)
            new.times_out_to(up, seconds=600)
            detour.transitions_to(down)
            up.transitions_to(down)
            down.transitions_to(up)

            @classmethod
            def handle_new(cls, instance: Any) -> None: ...

            handle_detour = handle_up = handle_down = handle_new

        # Both ways into the trap are as long; the one that is declared first is told.
        assert problem(Trap) == (
            "Trap.detour: no terminal or externally progressed state can be reached from here; "
            "path: new -transitions_to-> detour"
        )


NONSENSE: list[tuple[Any, str]] = [
    (lambda errors: -5, "after 1 error backoff returned -5"),
    (lambda errors: [1, 5, math.inf][errors - 1], "after 3 errors in a row backoff returned inf"),
    (lambda errors: [1, 5][errors - 1], "after 3 errors in a row backoff raised IndexError: list index"),
    (lambda errors: 7 - errors, "after 8 errors in a row backoff returned -1"),
]


def test_back_off_that_gives_nonsense_is_found_after_any_number_of_errors() -> None:
    for function, what in NONSENSE:
        message = problem(backing_off(function))
        assert message.startswith(f"Backing.tried: {what}")
        assert message.endswith("; it must return seconds, at least 0; path: new -transitions_to-> tried")
    asked = []
    check_graph(backing_off(lambda errors: asked.append(errors) or 0), max_examples=1)
    assert max(asked) == certain.MAX_ERRORS


def waits_for_ever(state: State, result: Any, **given: Any) -> Any:
    outcome = resolve(state, result, **given)
    return Waiting(MAX_SECONDS * 2, outcome.failure) if isinstance(outcome, Waiting) else outcome


def releases(state: State, result: Any, **given: Any) -> Any:
    return Released() if result is None else resolve(state, result, **given)


def breaks(state: State, result: Any, **given: Any) -> Any:
    return 1 / 0 if isinstance(result, TryAgainLater) else resolve(state, result, **given)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (waits_for_ever, f"waits {MAX_SECONDS * 2} s; it must be from 0 to"),
        (releases, "None must move or wait, but gave Released("),
        (breaks, "cannot be resolved: ZeroDivisionError: division by zero"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_outcome_that_cannot_be_followed_is_found(wrong: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "resolve", wrong)
    message = problem(Errand)
    assert what in message
    assert message.partition("; path: ")[2].startswith("new")


class TestHandlers:
    def test_handlers_that_return_what_is_declared_or_raise_what_is_meant_for_it_pass(self) -> None:
        for result in ("slow", None, Errand.outside):
            check_graph(Errand, objects=working(lambda result=result: result), max_examples=3)
        for error in (TryAgainLater(5), Fail("no")):
            check_graph(Errand, objects=working(lambda error=error: raises(error)), max_examples=3)

    @pytest.mark.parametrize("result", ["nowhere", True, StepGraph.slow], ids=repr)
    def test_undeclared_result_is_found(self, result: Any) -> None:
        message = problem(Errand, objects=working(lambda: result))
        assert message.startswith(
            f"Errand.new: the handler returned {result!r}; "
            "declared transitions lead to failed, outside, slow; path: new, with SimpleNamespace("
        )

    def test_object_that_goes_astray_is_found_among_others(self) -> None:
        class Odd(StateGraph):
            new = State(try_interval=60)
            checked = State(try_interval=60)
            done = State()
            new.transitions_to(checked)
            checked.transitions_to(done)

            @classmethod
            def handle_new(cls, instance: Any) -> State:
                return cls.checked

            @classmethod
            def handle_checked(cls, instance: Any) -> State:
                return cls.new if instance.number > 41 else cls.done

        numbered = st.builds(SimpleNamespace, number=st.integers(0, 1000))
        assert problem(Odd, objects=numbered) == (
            "Odd.checked: the handler returned <State new>; declared transitions lead to done; "
            "path: new -handler checked-> checked, with SimpleNamespace(number=42)"
        )

    def test_error_is_found_unless_it_may_happen(self) -> None:
        objects = working(lambda: raises(KeyError("x")))
        with pytest.raises(AssertionError, match=r"^Errand.new: the handler raised KeyError: 'x'; if it may") as raised:
            check_graph(Errand, objects=objects, max_examples=10)
        assert isinstance(raised.value.__cause__, KeyError)
        check_graph(Errand, objects=objects, raises=[LookupError], max_examples=10)


def test_walks_are_the_same_every_time() -> None:
    def numbers() -> list[int]:
        drawn: list[int] = []

        def thing(number: int) -> Any:
            drawn.append(number)
            return SimpleNamespace(work=lambda: None)

        check_graph(Errand, objects=st.builds(thing, st.integers(0, 10**9)), max_examples=10)
        return drawn

    first = numbers()
    assert len(set(first)) > 3
    assert numbers() == first


def test_without_hypothesis_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "stator.testing_graph")
    monkeypatch.delitem(sys.modules, "stator.testing_graph.walks")
    with pytest.raises(ImportError) as raised:
        check_graph(Errand)
    assert str(raised.value) == "check_graph() needs Hypothesis, which is not installed; pip install hypothesis"
