"""An attempt never raises, and tells what the handler did."""

import asyncio

import pytest

from stator.graph.outcomes import Released, Waiting
from stator.worker.executor import STOPPED, attempt_async, attempt_sync, timed_out
from tests.stator.worker.fakes import FakeClaim, FakeOperations


def outcome_of(act, state="called", **attributes):
    claim = FakeClaim(FakeOperations(), state, act, **attributes)
    attempted = asyncio.run(attempt_async([claim])) if state == "awaited" else attempt_sync([claim])
    ((ended, outcome),) = attempted.ended
    assert ended is claim
    return outcome


def raising(error, is_async):
    def act():
        raise error

    async def act_async():
        raise error

    return act_async if is_async else act


@pytest.mark.parametrize("state", ["called", "awaited"])
@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyboardInterrupt(), SystemExit(0), GeneratorExit(), asyncio.CancelledError(), MemoryError()],
)
def test_any_exception_becomes_an_outcome(state, error):
    outcome = outcome_of(raising(error, state == "awaited"), state)
    assert isinstance(outcome, Waiting)
    assert type(error).__name__ in outcome.failure.kind


def test_result_whose_methods_raise_becomes_an_error():
    class Odd(str):
        __hash__ = None

    assert "unhashable" in outcome_of(lambda: Odd("done")).failure.message


def test_attempt_that_comes_too_late_is_not_begun():
    assert outcome_of(pytest.fail, deadline=0.0) == Released()


@pytest.mark.parametrize(("why", "released"), [("shutdown", True), ("lease", True), ("max_runtime", False)])
def test_cancelled_attempt_is_released_or_timed_out(why, released):
    """It has begun, so it counts."""
    outcome = outcome_of(raising(asyncio.CancelledError(), True), "awaited", cancelled_for=why)
    assert (outcome == Released(reason=STOPPED, begun=True)) is released
    assert released or outcome.failure.kind == "stator.exceptions.AttemptTimedOut"


def test_timeout_of_an_attempt_names_its_limit():
    outcome = timed_out(FakeClaim(FakeOperations(), max_runtime=2.5))
    assert outcome.failure.message == "the attempt ran longer than max_runtime=2.5 s and was ended"
