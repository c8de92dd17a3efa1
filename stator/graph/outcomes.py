"""Outcomes of attempts: the one place that turns a handler's result or error into an outcome. Pure functions."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from stator.exceptions import Fail, InvalidTransition, NotBegun, TryAgainLater
from stator.graph.backoff import MAX_SECONDS, delay_after, jittered
from stator.graph.failures import MESSAGE_LENGTH, Failure, bounded, describe, text_of
from stator.graph.graphs import State


@dataclass(frozen=True, slots=True)
class Moved:
    """The object goes to another state. ``failure`` is set if an error is the cause.

    ``values``: of the fields that the state it leaves ``saves``.
    """

    to: State
    failure: Failure | None = None
    values: dict[str, object] | None = field(default=None, repr=False, compare=False)

    reason: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The object stays and is due again after ``delay`` seconds. With a failure it counts as an error."""

    delay: float
    failure: Failure | None = None
    reason: str = ""
    values: dict[str, object] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt has no result: the object is ready again, or due in ``after`` seconds.

    ``begun``: the handler had begun, so the attempt stays counted; else it did not take place.
    """

    after: float = 0.0
    reason: str = ""
    begun: bool = False

    failure: ClassVar[Failure | None] = None
    values: ClassVar[dict[str, object] | None] = None


Outcome = Moved | Waiting | Released


def resolve(state: State, result: object, *, failures: int = 0, age: float = 0.0) -> Outcome:
    """Return the outcome of an attempt that returned ``result`` or raised it.

    ``failures``: consecutive errors before this attempt. ``age``: seconds the object has been in ``state``. Past the
    state's timeout, every outcome but a move becomes the move to the timeout state.
    """
    # The common cases. Such an outcome has no data of the object, so all objects share it.
    if type(result) is State and (known := state.moves.get(result.name)) is not None and known.to is result:
        return known
    if type(result) is str and (known := state.moves.get(result)) is not None:
        return known
    if isinstance(result, NotBegun):
        # The single rule for every failure before the handler is called.
        return Released(result.after, result.reason)
    if isinstance(result, BaseException):
        return _raised(state, result, failures, age)
    if result is None:
        return _waiting(state, _interval(state), age)
    to = _target(state, result)
    if to is not None:
        moved = state.moves[to.name] = Moved(to)
        return moved
    return _raised(state, _not_a_transition(state, result), failures, age)


def _target(state: State, result: object) -> State | None:
    if isinstance(result, State):
        if result in state.children:
            return result
        # A handler inherited from a parent graph may name that graph's state.
        if result.graph is None or state.graph is None or not issubclass(state.graph, result.graph):
            return None
        result = result.name
    if not isinstance(result, str | int) or isinstance(result, bool):
        return None
    # By its name, or by what the column has for it.
    return next((to for to in state.children if result in (to.name, to.value)), None)


def _raised(state: State, error: BaseException, failures: int, age: float) -> Moved | Waiting:
    if isinstance(error, TryAgainLater):
        delay = _interval(state) if error.after is None else max(0.0, error.after)
        return _waiting(state, delay, age, reason=text_of(error.reason) if error.reason else "")
    # ``raise Fail from error`` only says that a retry is useless; the cause is the error to report.
    cause = error.__cause__ if type(error) is Fail and not error.args and error.__cause__ else error
    failure = describe(cause)
    if isinstance(error, Fail) and state.failure_state is None:
        why = f"{state.name} has no fails_to(), so Fail is an error like any other and the object is attempted again"
        message = bounded(f"{failure.message}; {why}".removeprefix("; "), MESSAGE_LENGTH)
        failure = replace(failure, message=message, deliberate=False)
    if state.failure_state is not None and _is_final(state, error, failures + 1):
        return Moved(state.failure_state, failure)
    delay = delay_after(state.backoff, failures + 1, state.try_interval or 1.0)
    return _waiting(state, delay, age, failure=failure)


def _is_final(state: State, error: BaseException, failures: int) -> bool:
    return isinstance(error, Fail) or (state.max_failures is not None and failures >= state.max_failures)


def _waiting(
    state: State, delay: float, age: float, *, failure: Failure | None = None, reason: str = ""
) -> Moved | Waiting:
    if state.timeout_state is not None and state.timeout_value is not None:
        left = state.timeout_value - age
        if left <= 0:
            return Moved(state.timeout_state, failure)
        # The object is due at the timeout at the latest, so that the timeout does not fire a whole interval late.
        delay = min(delay, left)
    return Waiting(min(delay, MAX_SECONDS), failure, reason)


def _interval(state: State) -> float:
    return jittered(state.try_interval or 1.0, state.jitter)


def _not_a_transition(state: State, result: object) -> InvalidTransition:
    allowed = ", ".join(sorted(child.name for child in state.children))
    kind = repr(result[:100]) if isinstance(result, str) else f"an object of type {type(result).__name__}"
    if isinstance(result, State):
        kind = f"the state {result.name!r}"
    return InvalidTransition(
        f"{state.graph.__name__ if state.graph else '?'}.{state.name}: the handler returned {kind}; "
        f"declared transitions lead to {allowed}; return one of these, its name, or None"
    )
