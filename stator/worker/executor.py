"""Attempts: turn claims into outcomes, and never raise.

An attempt is one call of a handler, with one object or, in a state with ``batch``, with several.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from types import CoroutineType
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import Model

from stator.db.interface import Claim, Ended, Written
from stator.db.preparing import not_begun
from stator.db.retry import is_lock_timeout, is_of_database, is_of_schema
from stator.db.tables import lack_of
from stator.db.values import Pk
from stator.exceptions import AttemptTimedOut, InvalidTransition, passable
from stator.graph import State
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Outcome, Released, Waiting, resolve
from stator.graph.running import RUNNING
from stator.rows.fields import values_set
from stator.worker.announcements import tell
from stator.worker.threads import close_broken_connections, tidy_connections_of_loop

logger = logging.getLogger("stator.worker")

# Stands for an error that is not the handler's: the model's table lacks something.
UNFIT = Released(begun=True, reason="the attempt was rolled back: its table lacked a column")
# The reason of an attempt that was begun and has no result.
STOPPED = "the attempt was ended by its worker before it had a result"
# The outcome of an atomic attempt that could not record its own outcome because another transaction locks a table.
LOCKED_OUT = Waiting(2.0, reason="the attempt was rolled back: another transaction locked a table of its outcome")

# Seconds until the next attempt if the state's own interval cannot be computed.
FALLBACK = 60.0


# The states with handlers of several objects of which that was logged in this process.
_unanswered: set[State] = set()


class Attempted(NamedTuple):
    """Results of an attempt: outcomes to record, and outcomes already recorded together with the handler's writes."""

    ended: list[Ended]
    recorded: Sequence[Ended] = ()
    written: Written | None = None


class Calls(NamedTuple):
    """How the handler of a state is called.

    ``sync``, ``on_loop`` and ``atomic`` return the outcomes of a call. The first two raise what a call for several
    objects raised. ``atomic`` rolls back everything that it did not record. ``given_up`` is called when nobody waits
    for a call any more.
    """

    sync: Callable[[list[Claim]], list[Ended]]
    on_loop: Callable[[list[Claim]], Coroutine[object, None, list[Ended]]]
    atomic: Callable[[list[Claim]], Attempted]
    given_up: Callable[[Claim, Outcome], None]


# By the label of a model and the name of a state; a state is left out if nothing is around its handler.
CallsByState = Mapping[tuple[str, str], Calls]


def attempt_sync(claims: list[Claim], calls: Calls | None = None) -> Attempted:
    """Run a synchronous handler in the calling thread, each call in a copy of its context.

    ``calls``: how the handler is called, if an extension does something around it.
    """
    operations, calls = claims[0].operations, calls or PLAIN
    # Even a context that does nothing costs as much as the rest of this function.
    if not operations.scope.path:
        return _attempt_sync(claims, calls)
    with operations.scope.enter():
        return _attempt_sync(claims, calls)


def _attempt_sync(claims: list[Claim], calls: Calls) -> Attempted:
    if not claims[0].may_begin:
        return _unbegun(claims)
    if claims[0].state.atomic:
        return _attempt_atomic(claims, calls)
    try:
        return Attempted(copy_context().run(calls.sync, claims))
    except BaseException:  # noqa: BLE001 - any error of a handler is an outcome, not the end of the worker
        singly = [[claim] for claim in claims]
    # One bad object must not fail its batch, so each is attempted by itself.
    return Attempted([ended for each in singly for ended in _again(each) or copy_context().run(calls.sync, each)])


async def attempt_async(claims: list[Claim], calls: Calls | None = None) -> Attempted:
    """Run an asynchronous handler on the event loop."""
    operations, calls = claims[0].operations, calls or PLAIN
    # As above.
    if not operations.scope.path:
        return await _attempt_async(claims, calls)
    with operations.scope.enter():
        return await _attempt_async(claims, calls)


async def _attempt_async(claims: list[Claim], calls: Calls) -> Attempted:
    # An attempt that has begun in a thread goes on.
    if not (claims[0].may_begin or claims[0].started):
        return _unbegun(claims)
    context = copy_context() if claims[0].state.batch else None
    try:
        return Attempted(await calls.on_loop(claims))
    except GeneratorExit:
        # The call is being closed, which throws this error into it: nothing can be awaited any more.
        raise
    except BaseException:  # noqa: BLE001 - as above
        singly = [[claim] for claim in claims]
    ended = []
    for each in singly:
        ended += _again(each) or await asyncio.create_task(calls.on_loop(each), context=context and context.copy())
    return Attempted(ended)


def timed_out(claim: Claim) -> Outcome:
    """Return the outcome of an attempt that was ended because it took too long."""
    return _outcome(
        claim, AttemptTimedOut(f"the attempt ran longer than max_runtime={claim.max_runtime:g} s and was ended")
    )


def _unbegun(claims: list[Claim]) -> Attempted:
    return Attempted([(claim, Released()) for claim in claims])


def _again(claims: list[Claim]) -> list[Ended]:
    """Return the outcomes if the handler may not be called once more for the objects of a failed batch."""
    if claims[0].may_begin:
        for claim in claims:
            claim.begin_again()
        return []
    return [(claim, claim.unfinished(STOPPED)) for claim in claims]


def call(claims: list[Claim]) -> list[Ended]:
    """Call a synchronous handler; raise its error only if it was called for several objects."""
    try:
        result = begin(claims)
        results: list[object] = results_of_each(claims, result) if claims[0].state.batch else [result]
    except BaseException as error:
        if len(claims) > 1:
            raise
        results = [_blamed(claims, error)]
    return outcomes_of(claims, results)


async def call_async(claims: list[Claim]) -> list[Ended]:
    """Call an asynchronous handler as :func:`call` calls a synchronous one; raise nothing if it was cancelled."""
    try:
        result = await begin(claims)
        results: list[object] = results_of_each(claims, result) if claims[0].state.batch else [result]
    except BaseException as error:
        if is_of_database(error):
            await tidy_connections_of_loop()
        if len(claims) > 1 and claims[0].cancelled_for is None:
            raise passable(error) from error
        blamed = await sync_to_async(_blamed)(claims, error) if is_of_schema(error) else error
        results = [blamed] * len(claims)
    return outcomes_of(claims, results)


def _blamed(claims: list[Claim], error: BaseException) -> BaseException | Outcome:
    """Return the error, or UNFIT if the model's table lacks something: then the attempt does not count."""
    operations = claims[0].operations
    try:
        return UNFIT if is_of_schema(error) and lack_of(operations.model, operations.alias) else error
    except (DatabaseError, InterfaceError):
        # The table cannot be read, for instance in a transaction that the handler broke and left open.
        return error


def begin(claims: list[Claim]) -> Any:
    """Call the handler; return its result, which is an awaitable if the handler is asynchronous."""
    now, state = time.monotonic(), claims[0].state
    RUNNING.set(claims)
    for claim in claims:
        claim.started, claim.finished = claim.started or now, 0.0
        claim.instance.__dict__["stator"] = claim
        if claim.kept and claim.unreadable is not None:
            with claim.preparing():
                raise claim.unreadable
    return state.handler([claim.instance for claim in claims] if state.batch else claims[0].instance)


def results_of_each(claims: list[Claim], result: object) -> list[object]:
    """Return the handler's result for each object."""
    if not isinstance(result, dict) or not claims[0].state.batch:
        return [result] * len(claims)
    # The claim has the key: a deleted object has none any more, and an instance without a key cannot be hashed.
    own = {id(claim.instance): claim.pk for claim in claims}
    model = claims[0].operations.model._meta.concrete_model
    results = [(own.get(id(each), _key_of(model, each)), answer) for each, answer in result.items()]
    pks = set(own.values())
    if strangers := sum(pk not in pks for pk, _ in results):
        raise InvalidTransition(f"the handler returned a result for {strangers} objects that are not in its batch")
    answers = dict(results)
    return _each(claims, answers)


def _each(claims: list[Claim], answers: dict[Pk, object]) -> list[object]:
    """Return the answer for each object; log once for each state that some have none, by intent or by mistake."""
    state, count = claims[0].state, len(claims) - len(answers)
    if count and state not in _unanswered:
        _unanswered.add(state)
        fields = {"model": claims[0].operations.label, "state": state.name, "count": count}
        logger.info("stator.answers_missing", extra=fields)
    return [answers.get(claim.pk) for claim in claims]


def _key_of(model: type[Model] | None, each: object) -> Pk:
    """Return the key if ``each`` is another instance of an object of the batch, else None."""
    return each.pk if isinstance(each, Model) and each._meta.concrete_model is model else None


def call_atomic(claims: list[Claim]) -> Attempted:
    """Call the handler and write its outcome in one transaction; an error as outcome undoes the handler's writes.

    A failure before the call is retried once. If another transaction's lock prevents recording, that is not the
    handler's error.
    """
    for again in (True, False):
        atomic = _Atomic(claims)
        try:
            return atomic.attempt()
        except _RolledBack as back:
            return Attempted(back.ended)
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


PLAIN = Calls(call, call_async, call_atomic, lambda claim, outcome: None)


def _attempt_atomic(claims: list[Claim], calls: Calls) -> Attempted:
    attempted = copy_context().run(calls.atomic, claims)
    first = attempted.ended[0][1] if attempted.ended else None
    if len(claims) == 1 or first is None or first is LOCKED_OUT or isinstance(first, Released):
        return attempted
    # One bad object must not undo its batch.
    parts = [
        Attempted(again) if (again := _again([claim])) else copy_context().run(calls.atomic, [claim])
        for claim in claims
    ]
    return Attempted(
        [pair for part in parts for pair in part.ended],
        [pair for part in parts for pair in part.recorded],
        Written.total(part.written for part in parts if part.written),
    )


class _Atomic:
    """One transaction around a call of a handler, and how far it got."""

    def __init__(self, claims: list[Claim]) -> None:
        self.begun = self.recording = False
        self._claims = claims
        self._operations = claims[0].operations
        # Inside a caller's transaction there is no retry, and nothing is committed yet.
        self.outermost = not self._operations.connection.in_atomic_block
        self._committed = False
        self._recorded: list[Ended] = []
        self._written = Written()

    def attempt(self) -> Attempted:
        """Return the outcomes after they are committed and signals are sent; raise the error that undid them."""
        try:
            self._transact()
        except BaseException as error:
            if not self._committed:
                raise
            # A callback that the handler registered for after the commit raised.
            fields = {"model": self._operations.label, "state": self._claims[0].state.name}
            logger.error("stator.on_commit_failed", extra=fields, exc_info=error)
        tell(self._operations, self._written, self._claims)
        return Attempted([], self._recorded, self._written)

    def _transact(self) -> None:
        operations = self._operations
        with operations.handler_transaction():
            if self.outermost:
                # Registered before all other callbacks, to know whether an error comes after the commit.
                transaction.on_commit(self._note_commit, using=operations.alias)
            # The rows are locked until the commit: a claim that is valid now is still valid then.
            mine = operations.lock_claimed(self._claims)
            self.begun = True
            ended = outcomes_of(mine, results_of_each(mine, begin(mine))) if mine else []
            if any(outcome.failure for _, outcome in ended):
                raise _RolledBack(ended)
            self.recording = True
            self._recorded, self._written = ended, operations.record(ended, last=self.outermost)
            self._written.lost.extend(claim for claim in self._claims if claim not in mine)

    def _note_commit(self) -> None:
        self._committed = True


class _RolledBack(Exception):
    """Rolls back the writes of a handler whose result is an error."""

    def __init__(self, ended: list[Ended]) -> None:
        super().__init__()
        self.ended = ended


def outcomes_of(claims: list[Claim], results: Sequence[object]) -> list[Ended]:
    """Return the outcomes for the results, or errors, of an attempt that ends now."""
    now = time.monotonic()
    ended = []
    for claim, result in zip(claims, results, strict=True):
        # The code that the handler called in a thread may have returned before.
        claim.finished = claim.finished or now
        ended.append((claim, _outcome(claim, result)))
    return ended


def _outcome(claim: Claim, result: object) -> Outcome:
    # The common results skip these checks.
    if result is not None and type(result) is not State:
        if isinstance(result, asyncio.CancelledError) and claim.cancelled_for is not None:
            return timed_out(claim) if claim.cancelled_for == "max_runtime" else claim.unfinished(STOPPED)
        if result is UNFIT:
            return UNFIT
        if isinstance(result, CoroutineType):
            result.close()
    age = claim.age + (claim.finished or time.monotonic()) - claim.claimed
    try:
        outcome = resolve(claim.state, result, failures=claim.failures, age=age)
        if isinstance(outcome, Released):
            if isinstance(result, BaseException) and result.__cause__ is not None:
                fields = {"model": claim.operations.label, "pk": str(claim.pk), "reason": outcome.reason}
                logger.warning("stator.not_begun", extra=fields)
            return outcome
        return _with_values(claim, outcome) if claim.state.saves else outcome
    except BaseException as error:  # noqa: BLE001 - the state's own back-off function, or the methods of what the handler returned
        return Waiting(claim.state.try_interval or FALLBACK, describe(error))


def _with_values(claim: Claim, outcome: Moved | Waiting) -> Outcome:
    """Return the outcome with the values that its state ``saves``; after a failure they are not saved."""
    if outcome.failure is not None:
        return outcome
    values = values_set(claim.instance, claim.operations.saved[claim.state.name])
    if values is None:
        return outcome
    return Moved(outcome.to, values=values) if type(outcome) is Moved else replace(outcome, values=values)
