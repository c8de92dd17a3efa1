"""A claim in, an outcome out: carries out one attempt, and never raises."""

import asyncio
import inspect
import time
from typing import Any

from stator.db.claim import Claim
from stator.exceptions import AttemptTimedOut
from stator.failures import describe
from stator.outcomes import Outcome, Released, Waiting, resolve

# Seconds until the next attempt when the state's own answer cannot be had.
FALLBACK = 60.0


def attempt_sync(claim: Claim) -> Outcome:
    """Run a synchronous handler in the calling thread."""
    try:
        result = _begin(claim)
    except BaseException as error:  # whatever a handler raises is an outcome, not the end of the worker
        result = error
    return _outcome(claim, result)


async def attempt_async(claim: Claim) -> Outcome:
    """Run an asynchronous handler on the event loop."""
    try:
        result = await _begin(claim)
    except BaseException as error:  # as above
        result = error
    return _outcome(claim, result)


def timed_out(claim: Claim) -> Outcome:
    """The outcome of an attempt that was ended because it took too long."""
    return _outcome(
        claim, AttemptTimedOut(f"the attempt ran longer than max_runtime={claim.max_runtime:g} s and was ended")
    )


def _begin(claim: Claim) -> Any:
    claim.started = time.monotonic()
    claim.instance.__dict__["stator"] = claim
    return claim.state.handler(claim.instance)


def _outcome(claim: Claim, result: Any) -> Outcome:
    if isinstance(result, asyncio.CancelledError) and claim.cancelled_for is not None:
        return timed_out(claim) if claim.cancelled_for == "max_runtime" else Released()
    if inspect.iscoroutine(result):
        result.close()
    age = claim.age + time.monotonic() - claim.claimed
    try:
        return resolve(claim.state, result, failures=claim.failures, age=age)
    except Exception as error:  # the state's own back-off function, or the methods of what the handler returned
        return Waiting(claim.state.try_interval or FALLBACK, describe(error))
