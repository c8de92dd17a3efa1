"""The policy beside a second, independent implementation: random walks with every kind of result agree."""

from typing import Any

import pytest

from stator.exceptions import Fail
from stator.graph import State, StateGraph
from stator.graph.outcomes import Moved, Released, Waiting, resolve
from stator.testing import check_graph
from stator.testing_graph import walks
from tests.stator.graph.policy import check
from tests.stator.test_testing_graph import Errand
from tests.testapp.basic import DeedGraph, RestGraph, StepGraph
from tests.testapp.operators import EagerGraph, ParcelGraph
from tests.testapp.power import OrderGraph
from tests.testapp.takahe import DomainStates, PinStates, PostStates


def compared(made: Any) -> Any:
    """An implementation whose every outcome is compared with the second one."""

    def resolve_and_compare(state: State, result: Any, *, failures: int, age: float) -> Any:
        outcome = made(state, result, failures=failures, age=age)
        check(state, result, outcome, failures=failures, age=age)
        return outcome

    return resolve_and_compare


@pytest.mark.parametrize(
    "graph",
    [Errand, StepGraph, DeedGraph, RestGraph, ParcelGraph, OrderGraph, PinStates, DomainStates, PostStates, EagerGraph],
    ids=lambda graph: graph.__name__,
)
def test_both_implementations_agree(graph: type[StateGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "resolve", compared(resolve))
    check_graph(graph, max_examples=10)


# Each in place of stator.graph.outcomes.resolve; wrong in one way.


def takes_any_name(state: State, result: Any, **given: Any) -> Any:
    named = result if isinstance(result, State) else state.graph.states.get(result) if type(result) is str else None
    return Moved(named) if named is not None and named.name else resolve(state, result, **given)


def never_fails(state: State, result: Any, *, failures: int, age: float) -> Any:
    return resolve(state, result, failures=0 if not isinstance(result, Fail) else failures, age=age)


def fails_early(state: State, result: Any, *, failures: int, age: float) -> Any:
    return resolve(state, result, failures=failures + 1, age=age)


def retries_for_ever(state: State, result: Any, **given: Any) -> Any:
    return resolve(state, ValueError() if isinstance(result, Fail) else result, **given)


def never_times_out(state: State, result: Any, *, failures: int, age: float) -> Any:
    return resolve(state, result, failures=failures, age=0)


def loses_errors(state: State, result: Any, **given: Any) -> Any:
    outcome = resolve(state, result, **given)
    return Waiting(outcome.delay) if isinstance(outcome, Waiting) else outcome


def releases(state: State, result: Any, **given: Any) -> Any:
    return Released() if result is None else resolve(state, result, **given)


@pytest.mark.parametrize(
    "wrong",
    [takes_any_name, never_fails, fails_early, retries_for_ever, never_times_out, loses_errors, releases],
    ids=lambda value: value.__name__,
)
def test_wrong_one_is_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "resolve", compared(wrong))
    with pytest.raises(AssertionError, match="cannot be resolved: AssertionError"):
        check_graph(Errand, max_examples=20)
