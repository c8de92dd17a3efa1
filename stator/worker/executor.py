"""A claim in, an outcome out: carries out one attempt, and never raises."""

import asyncio
import inspect
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError

from stator.db.claim import Claim
from stator.exceptions import AttemptTimedOut
from stator.failures import describe
from stator.outcomes import Outcome, Released, Waiting, resolve
from stator.worker.threads import close_broken_connections

# Seconds until the next attempt when the state's own answer cannot be had.
FALLBACK = 60.0


def attempt_sync(claim: Claim) -> Outcome:
    """Run a synchronous handler in the calling thread."""
    if _is_late(claim):
        return Released()
    try:
        result = _begin(claim)
    except BaseException as error:  # whatever a handler raises is an outcome, not the end of the worker
        result = error
    return _outcome(claim, result)


async def attempt_async(claim: Claim) -> Outcome:
    """Run an asynchronous handler on the event loop."""
    if _is_late(claim):
        return Released()
    try:
        result = await _begin(claim)
    except BaseException as error:  # as above
        result = error
        if isinstance(error, DatabaseError | InterfaceError):
            # In the thread where Django runs the queries of asynchronous code; nobody else would mend it.
            await sync_to_async(close_broken_connections)()
    return _outcome(claim, result)


def timed_out(claim: Claim) -> Outcome:
    """The outcome of an attempt that was ended because it took too long."""
    return _outcome(
        claim, AttemptTimedOut(f"the attempt ran longer than max_runtime={claim.max_runtime:g} s and was ended")
    )


def _is_late(claim: Claim) -> bool:
    """Whether the lease is nearly over before the attempt has begun: others may have the row before it ends."""
    return time.monotonic() > claim.deadline


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
