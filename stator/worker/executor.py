"""Claims in, outcomes out: carries out one attempt, and never raises.

An attempt is one call of a handler: of one object, or in a state with ``batch`` of several.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from types import CoroutineType
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import Model

from stator.db import Operations
from stator.db.claim import Claim
from stator.db.preparing import not_begun
from stator.db.retry import is_lock_timeout, is_of_database, is_of_schema
from stator.db.schema import lack_of
from stator.db.written import Ended, Moves, Written
from stator.exceptions import AttemptTimedOut, InvalidTransition
from stator.failures import describe
from stator.outcomes import Moved, Outcome, Released, Waiting, resolve
from stator.worker.recorder import tell
from stator.worker.threads import close_broken_connections, tidy_connections_of_loop

logger = logging.getLogger("stator.worker")

# Stands for an error that is not the handler's: the table of its model lacks something.
UNFIT = Released()
# The outcome of an atomic attempt whose own outcome could not be written for a lock of others on a table.
LOCKED_OUT = Waiting(2.0, reason="the attempt was undone: a table of its outcome was locked by another transaction")

# Seconds until the next attempt when the state's own answer cannot be had.
FALLBACK = 60.0


class Attempted(NamedTuple):
    """What came of an attempt: outcomes to record, and those recorded already, with the handler's own writes."""

    ended: list[Ended]
    recorded: Sequence[Ended] = ()
    written: Written | None = None


class Calls(NamedTuple):
    """How handlers are called, and rows moved without one.

    ``sync``, ``awaited`` and ``atomic`` give what a call means. The first two raise what a call for several objects
    raised; what ``atomic`` did not record is undone. ``given_up`` is told of calls that are waited for no more.
    ``mover`` gives the ``move_rows`` of operations.
    """

    sync: Callable[[list[Claim]], list[Ended]]
    awaited: Callable[[list[Claim]], Awaitable[list[Ended]]]
    atomic: Callable[[list[Claim]], Attempted]
    given_up: Callable[[Claim, Outcome], None]
    mover: Callable[[Operations], Callable[..., Moves]]


def attempt_sync(claims: list[Claim], calls: Calls | None = None) -> Attempted:
    """Run a synchronous handler in the calling thread."""
    calls = calls or PLAIN
    if _are_late(claims):
        return Attempted([(claim, Released()) for claim in claims])
    if claims[0].state.atomic:
        return _attempt_atomic(claims, calls)
    try:
        return Attempted(calls.sync(claims))
    except BaseException:  # noqa: BLE001 - whatever a handler raises is an outcome, not the end of the worker
        singly = [[claim] for claim in claims]
    # One bad object must not spoil the others: each is tried by itself.
    return Attempted([ended for each in singly for ended in calls.sync(each)])


async def attempt_async(claims: list[Claim], calls: Calls | None = None) -> Attempted:
    """Run an asynchronous handler on the event loop."""
    calls = calls or PLAIN
    if _are_late(claims):
        return Attempted([(claim, Released()) for claim in claims])
    try:
        return Attempted(await calls.awaited(claims))
    except BaseException:  # noqa: BLE001 - as above
        singly = [[claim] for claim in claims]
    return Attempted([ended for each in singly for ended in await calls.awaited(each)])


def timed_out(claim: Claim) -> Outcome:
    """The outcome of an attempt that was ended because it took too long."""
    return _outcome(
        claim, AttemptTimedOut(f"the attempt ran longer than max_runtime={claim.max_runtime:g} s and was ended")
    )


def _are_late(claims: list[Claim]) -> bool:
    """Whether the lease is nearly over before the attempt has begun: others may have the row before it ends."""
    return time.monotonic() > claims[0].deadline


def call(claims: list[Claim]) -> list[Ended]:
    """Call a synchronous handler; raises what it raised only where it was called for several objects."""
    try:
        results = spread(claims, begin(claims))
    except BaseException as error:
        if len(claims) > 1:
            raise
        results = [_blamed(claims, error)]
    return outcomes_of(claims, results)


async def call_async(claims: list[Claim]) -> list[Ended]:
    """The same for an asynchronous handler; of one that was cancelled nothing is raised."""
    try:
        results = spread(claims, await begin(claims))
    except BaseException as error:
        if is_of_database(error):
            await tidy_connections_of_loop()
        if len(claims) > 1 and claims[0].cancelled_for is None:
            raise
        blamed = await sync_to_async(_blamed)(claims, error) if is_of_schema(error) else error
        results = [blamed] * len(claims)
    return outcomes_of(claims, results)


def _blamed(claims: list[Claim], error: BaseException) -> Any:
    """Return the error, or UNFIT where the table of the model lacks something: then the attempt does not count."""
    operations = claims[0].operations
    try:
        return UNFIT if is_of_schema(error) and lack_of(operations.model, operations.alias) else error
    except (DatabaseError, InterfaceError):
        # In a transaction that the handler broke and left open, for one.
        return error


def begin(claims: list[Claim]) -> Any:
    """Call the handler; what it returned, of an asynchronous one something to await."""
    now = time.monotonic()
    for claim in claims:
        claim.started = claim.started or now
        claim.instance.__dict__["stator"] = claim
        if claim.unreadable is not None:
            with claim.preparing():
                raise claim.unreadable
    state = claims[0].state
    return state.handler([claim.instance for claim in claims] if state.batch else claims[0].instance)


def spread(claims: list[Claim], result: Any) -> list[Any]:
    """What the handler returned for each object."""
    if not isinstance(result, dict) or not claims[0].state.batch:
        return [result] * len(claims)
    # By the claim's key: an object that the handler deleted has none any more, and without one it cannot be looked up.
    own = {id(claim.instance): claim.pk for claim in claims}
    model = claims[0].operations.model._meta.concrete_model
    results = [(own.get(id(each), _key_of(model, each)), answer) for each, answer in result.items()]
    pks = set(own.values())
    if strangers := sum(pk not in pks for pk, _ in results):
        raise InvalidTransition(f"the handler returned a result for {strangers} objects that are not in its batch")
    answers = dict(results)
    return [answers.get(claim.pk) for claim in claims]


def _key_of(model: Any, each: Any) -> Any:
    """The key of another instance of an object of a batch; None of anything else."""
    return each.pk if isinstance(each, Model) and each._meta.concrete_model is model else None


def call_atomic(claims: list[Claim]) -> Attempted:
    """Call the handler and write its outcome in one transaction; an outcome that is an error undoes what it wrote.

    What fails before the handler was called is tried once more; a lock of others after the call is no error of it.
    """
    for again in (True, False):
        atomic = _Atomic(claims)
        try:
            return atomic.attempt()
        except _Undone as undone:
            return Attempted(undone.ended)
        except BaseException as error:  # noqa: BLE001 - as above
            if atomic.recording and is_lock_timeout(error):
                return Attempted([(claim, LOCKED_OUT) for claim in claims])
            blamed = _blamed(claims, error)
            if atomic.begun or blamed is UNFIT:
                return Attempted(outcomes_of(claims, [blamed] * len(claims)))
            close_broken_connections()
            if not (again and atomic.outermost):
                return Attempted(outcomes_of(claims, [not_begun(error)] * len(claims)))
    raise AssertionError("the last attempt returns")


PLAIN = Calls(call, call_async, call_atomic, lambda claim, outcome: None, attrgetter("move_rows"))


def _attempt_atomic(claims: list[Claim], calls: Calls) -> Attempted:
    attempted = calls.atomic(claims)
    first = attempted.ended[0][1] if attempted.ended else None
    if len(claims) == 1 or first is None or first is LOCKED_OUT or isinstance(first, Released):
        return attempted
    # One bad object must not undo the others.
    parts = [calls.atomic([claim]) for claim in claims]
    return Attempted(
        [pair for part in parts for pair in part.ended],
        [pair for part in parts for pair in part.recorded],
        Written.total(part.written for part in parts if part.written),
    )


class _Atomic:
    """One transaction with a call of a handler in it, and how far it came."""

    def __init__(self, claims: list[Claim]) -> None:
        self.begun = self.recording = False
        self._claims = claims
        self._operations = claims[0].operations
        # In the transaction of a caller there is no second try, and nothing is committed yet.
        self.outermost = not self._operations.connection.in_atomic_block
        self._committed = False
        self._recorded: list[Ended] = []
        self._written = Written()

    def attempt(self) -> Attempted:
        """Return the outcomes once they are committed and signals are sent; raise the error that undid them."""
        try:
            self._transact()
        except BaseException as error:
            if not self._committed:
                raise
            # The handler had something called after the commit, and that raised.
            fields = {"model": self._operations.label, "state": self._claims[0].state.name}
            logger.error("stator.on_commit_failed", extra=fields, exc_info=error)
        tell(self._operations, self._written)
        return Attempted([], self._recorded, self._written)

    def _transact(self) -> None:
        operations = self._operations
        with operations.handler_transaction():
            if self.outermost:
                # The first of all that are called then, so it is known whether an error comes after the commit.
                transaction.on_commit(self._note_commit, using=operations.alias)
            # Locked from here to the commit: the claims that stand now stand then.
            mine = operations.lock_claimed(self._claims)
            self.begun = True
            ended = outcomes_of(mine, spread(mine, begin(mine))) if mine else []
            if any(outcome.failure for _, outcome in ended):
                raise _Undone(ended)
            self.recording = True
            self._recorded, self._written = ended, operations.record(ended)
            self._written.lost.extend(claim for claim in self._claims if claim not in mine)

    def _note_commit(self) -> None:
        self._committed = True


class _Undone(Exception):
    """Rolls back what a handler wrote that then returned no transition."""

    def __init__(self, ended: list[Ended]) -> None:
        super().__init__()
        self.ended = ended


def outcomes_of(claims: list[Claim], results: list[Any]) -> list[Ended]:
    """What the results of an attempt that ends now mean, those that it raised included."""
    now = time.monotonic()
    ended = []
    for claim, result in zip(claims, results, strict=True):
        claim.finished = now
        ended.append((claim, _outcome(claim, result)))
    return ended


def _outcome(claim: Claim, result: Any) -> Outcome:
    if isinstance(result, asyncio.CancelledError) and claim.cancelled_for is not None:
        return timed_out(claim) if claim.cancelled_for == "max_runtime" else Released()
    if result is UNFIT:
        return UNFIT
    if isinstance(result, CoroutineType):
        result.close()
    age = claim.age + (claim.finished or time.monotonic()) - claim.claimed
    try:
        outcome = resolve(claim.state, result, failures=claim.failures, age=age)
        if isinstance(outcome, Released):
            if result.__cause__ is not None:
                fields = {"model": claim.operations.label, "pk": str(claim.pk), "reason": outcome.reason}
                logger.warning("stator.not_begun", extra=fields)
            return outcome
        return _with_values(claim, outcome) if claim.state.saves else outcome
    except Exception as error:  # noqa: BLE001 - the state's own back-off function, or the methods of what the handler returned
        return Waiting(claim.state.try_interval or FALLBACK, describe(error))


def _with_values(claim: Claim, outcome: Moved | Waiting) -> Outcome:
    """The outcome with what its state ``saves``; what a handler left behind that failed is not worth keeping."""
    if outcome.failure is not None:
        return outcome
    column_of = claim.operations.model._meta.get_field
    return replace(
        outcome, values={name: getattr(claim.instance, column_of(name).attname) for name in claim.state.saves}
    )
