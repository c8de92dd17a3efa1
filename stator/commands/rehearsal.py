"""Previews: handlers of the current code run on real rows, and everything is rolled back.

Each call of a handler has a transaction of its own on every database of the project, in the calling thread. Nothing
is committed, so no commit hook runs and no signal is sent. Effects outside the databases remain.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from types import FrameType

from asgiref.sync import async_to_sync
from django.db import DatabaseError, connections, transaction

from stator.db.claims import claim_one
from stator.db.interface import Claim, Ended, Operations
from stator.db.retry import is_outage
from stator.db.transactions import contained
from stator.graph import State
from stator.graph.failures import Failure, describe
from stator.graph.outcomes import Moved, Outcome
from stator.worker.executor import begin, outcomes_of, results_of_each

# Seconds that an asynchronous handler has to end after its time is over, before its wait is interrupted.
GRACE = 1.0


class TookTooLong(KeyboardInterrupt):
    """A handler ran too long on the objects ``pks`` and was interrupted as by Ctrl-C."""

    def __init__(self, pks: Iterable[object] = ()) -> None:
        super().__init__()
        self.pks = list(pks)


@dataclass(frozen=True, slots=True)
class Finding:
    """What an attempt would do to one object in the state ``source``.

    ``what``: ``"moves"``, ``"stays"``, ``"fails"`` or ``"times out"``; ``"moved by hand"`` or ``"deleted"`` if its own
    handler does that. ``to``: its state afterwards. ``error`` and ``message``: the error, or the reason to wait.
    ``fingerprint`` is equal for errors of one type raised at one place.
    """

    pk: object
    source: str
    what: str
    to: str
    error: str = ""
    message: str = ""
    fingerprint: str = ""


def rehearse(operations: Operations, state: State, pks: list[object], seconds: float) -> Iterator[Finding]:
    """Yield what one call of the state's handler would do to these objects, due or not.

    Objects that are claimed, locked, gone or in another state by now are left out. Raises :class:`TookTooLong` if a
    call takes longer than ``seconds``.
    """
    with _rolled_back(operations):
        claims = _claim(operations, state, pks)
        ended = _call(claims, seconds) if claims else []
        findings = [_finding(*each) for each in ended]
    if ended or not claims:
        yield from findings
        return
    # As in a worker, one bad object must not fail its batch.
    for claim in claims:
        yield from rehearse(operations, state, [claim.pk], seconds)


@contextmanager
def _rolled_back(operations: Operations) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(operations.handler_transaction())
        _never_commit(stack, operations.alias)
        for alias in connections:
            if alias != operations.alias and not connections[alias].settings_dict["ENGINE"].endswith(".dummy"):
                stack.enter_context(transaction.atomic(using=alias))
                _never_commit(stack, alias)
        yield


def _never_commit(stack: ExitStack, alias: str) -> None:
    stack.callback(transaction.set_rollback, True, using=alias)
    # As in Django's tests, a handler may open an outermost (``durable``) transaction: in a worker it is outermost.
    setattr(connections[alias].atomic_blocks[-1], "_from_testcase", True)  # noqa: B010 - no attribute that types know


def _claim(operations: Operations, state: State, pks: list[object]) -> list[Claim]:
    free = operations.rows.filter(pk__in=pks, **operations.state_field.at(state), state_claim=None).order_by("pk")
    claims = [claim_one(operations, pk) for pk in operations.lock(free, len(pks))]
    return [claim for claim in claims if claim is not None]


def _call(claims: list[Claim], seconds: float) -> list[Ended]:
    """Return the outcomes of a call of the handler; nothing if its objects have to be attempted one by one."""
    many, results = len(claims) > 1, list[object]()
    with contained(claims[0].operations):
        try:
            results = results_of_each(claims, copy_context().run(_result, claims, seconds))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            results = [] if many else [error]
    ended = outcomes_of(claims, results) if results else []
    undone = many and claims[0].state.atomic and any(outcome.failure for _, outcome in ended)
    return [] if undone else ended


def _result(claims: list[Claim], seconds: float) -> object:
    started = time.monotonic()
    is_async = claims[0].state.is_async
    with _interrupted_after(seconds + GRACE * is_async):
        try:
            result = begin(claims)
            return async_to_sync(_awaited)(result, seconds) if is_async else result
        finally:
            # Raised even if the handler caught the interruption.
            if time.monotonic() - started > seconds:
                raise TookTooLong(claim.pk for claim in claims)


async def _awaited(result: Awaitable[object], seconds: float) -> object:
    async with asyncio.timeout(seconds):
        return await result


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Raise :class:`TookTooLong` in a block that runs too long; works only in the main thread of a Unix process."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    started, heeded = time.monotonic(), signal.signal(signal.SIGALRM, _interrupt)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, heeded or signal.SIG_DFL)
        if left:
            # The alarm belongs to somebody else, so it is set again.
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - started)), interval)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


def _finding(claim: Claim, outcome: Outcome) -> Finding:
    """Record the outcome as a worker would, because only that shows whether the database accepts it."""
    operations = claim.operations
    try:
        with operations.transaction():
            lost = operations.record([(claim, outcome)]).lost
    except DatabaseError as error:
        if is_outage(error):
            raise
        return _failing(claim, describe(error), "")
    if lost:
        rows, field = operations.rows.filter(pk=claim.pk), operations.state_field
        state = next(map(field.name_of, rows.values_list(field.name, flat=True)), "")
        return Finding(claim.pk, claim.state.name, "moved by hand" if state else "deleted", state)
    return _judged(claim, outcome)


def _judged(claim: Claim, outcome: Outcome) -> Finding:
    to = outcome.to.name if isinstance(outcome, Moved) else ""
    if failure := outcome.failure:
        return _failing(claim, failure, to)
    what = ("times out" if _is_late(claim, to) else "moves") if to else "stays"
    return Finding(claim.pk, claim.state.name, what, to or claim.state.name, "", outcome.reason)


def _is_late(claim: Claim, to: str) -> bool:
    age = claim.age + claim.finished - claim.claimed
    most = claim.state.timeout_value
    return to == claim.state.timeout_state and most is not None and age >= most


def _failing(claim: Claim, failure: Failure, to: str) -> Finding:
    source, message = claim.state.name, failure.message.partition("\n")[0]
    return Finding(claim.pk, source, "fails", to or source, failure.kind, message, failure.fingerprint)
