"""A second, independent implementation of the policy in ``stator.graph.outcomes``, to compare with."""

import math

from stator.exceptions import Fail, TryAgainLater
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Waiting


def check(state: State, result: object, outcome: Outcome, *, failures: int, age: float) -> None:
    """Raise ``AssertionError`` unless the result leads where this policy says, and counts as an error if it is one."""
    wanted, errs = expected(state, result, failures, age), is_error(state, result)
    assert (outcome.failure is not None) == errs, f"{result!r} gave {outcome}"
    if wanted is None:
        assert isinstance(outcome, Waiting), f"{result!r} must wait, but gave {outcome}"
    else:
        assert isinstance(outcome, Moved), f"{result!r} must lead to {wanted.name}, but gave {outcome}"
        assert outcome.to is wanted, f"{result!r} must lead to {wanted.name}, but gave {outcome}"


def is_error(state: State, result: object) -> bool:
    """Return whether a result counts as an error: raised, or returned and not declared."""
    if isinstance(result, BaseException):
        return not isinstance(result, TryAgainLater)
    return result is not None and _declared(state, result) is None


def expected(state: State, result: object, failures: int, age: float) -> State | None:
    """Return the state that a result must lead to; None if the object must wait."""
    if not isinstance(result, BaseException) and _declared(state, result):
        return _declared(state, result)
    for_good = isinstance(result, Fail) or (state.max_failures or math.inf) <= failures + 1
    if is_error(state, result) and for_good and state.failure_state:
        return state.failure_state
    timed_out = state.timeout_value is not None and age >= state.timeout_value
    return state.timeout_state if timed_out else None


def _declared(state: State, result: object) -> State | None:
    if isinstance(result, State):
        # Compares graphs as well: a parent graph's state has the name of its heir, but so may one of another graph.
        ours = result.graph is not None and issubclass(state.graph, result.graph)
        result = result.name if ours else None
    edges = (edge for edge in state.graph.edges if edge.state.name == state.name)
    # An event without a target makes the object ready, and leads nowhere.
    targets = {edge.other.name for edge in edges if edge.event is None or edge.event.target is not None}
    return state.graph.states[result] if isinstance(result, str) and result in targets else None
