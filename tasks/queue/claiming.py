"""Claims of tasks by named workers: programs anywhere, through Python or the HTTP API."""

import logging
import time
from datetime import datetime
from functools import partial
from hashlib import sha256
from operator import itemgetter
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DatabaseError, IntegrityError
from django.db.models import CharField, F, Field, FloatField, OuterRef, QuerySet, Sum

from stator import claims
from stator.claims import Failure, bounded, describe
from stator.exceptions import LeaseLost
from tasks.actions.registry import Action, declared
from tasks.actions.throttles import ActionSlot
from tasks.client.consuming import beat_after
from tasks.conf import TaskSettings, load_settings
from tasks.exceptions import TaskError
from tasks.messages import Json, check_json, check_lease, check_metadata, check_worker, worker_digits
from tasks.queue import runs, single_statement
from tasks.queue.eligibility import allowed, attempts_left, in_line, lease_end, picker, renewed_end
from tasks.rows.queues import QueueRow
from tasks.rows.runs import Run
from tasks.rows.tables import queue_rows, run_rows
from tasks.rows.tasks import TaskRow
from tasks.sharding import shards

logger = logging.getLogger("tasks.queues")

# The columns of the task that a heartbeat reads anew.
FOLLOWED = ("heartbeat_interval", "max_unexpected_retries")

HEARTBEAT_FIELDS: dict[str, Field] = {"worker": CharField(), "lease": FloatField()}

# A try fails when another worker has just claimed a task of the same exclusive value.
TRIES = 10


class TaskClaim:
    """A task that a worker holds until it ends the claim, or its lease or its timeout runs out.

    Every method but ``verify`` writes, and only while the claim is held. Otherwise it raises
    :class:`~stator.exceptions.LeaseLost`, which says what became of the task, and nothing is changed.

    ``attempt``: 1 for the first.
    ``lease``: seconds from the claim, or the latest heartbeat, until it runs out.
    ``ended``: whether this program has ended the claim.
    """

    def __init__(self, claim: claims.Claim, worker: str, since: float | None = None) -> None:
        self._claim = claim
        self.worker = worker
        self.task = claim.instance
        self.token: UUID = claim.token
        self.attempt: int = claim.attempt
        self.lease: float = (self.task.state_locked_until - self.task.state_attempted).total_seconds()
        self.ended = self._is_lost = False
        # The task's columns as the end of the claim has written them, if the task waits again and they are known.
        self.left: dict[str, object] | None = None
        # The errors of this worker in all its claims of the task; 0 until one was noted in this claim.
        self.unexpected_errors = 0
        # The monotonic time from which the lease counts: before the statement that took it.
        self._since: float = claim.claimed if since is None else since

    def __repr__(self) -> str:
        return f"<TaskClaim of task {self.task.pk} by {self.worker}, attempt {self.attempt}>"

    @property
    def lost(self) -> bool:
        """Return whether the claim is lost: one of its methods found so, or its lease is over by this program's clock.

        The clock runs on while the database is unavailable. A claim that was ended in time is not lost.
        """
        return not self.ended and (self._is_lost or time.monotonic() >= self._since + self.lease)

    @property
    def heartbeat_due(self) -> float:
        """Return the monotonic time of the next heartbeat: after the task's interval, else a third of the lease."""
        return self._since + beat_after(self.lease, self.task.heartbeat_interval)

    @property
    def max_unexpected_retries(self) -> int | None:
        """Return the task's number of unexpected errors that one worker retries, as of the latest heartbeat."""
        most: int | None = self.task.max_unexpected_retries
        return most

    def verify(self) -> None:
        """Raise ``LeaseLost`` unless the claim is still held. Call it right before an action that cannot be undone."""
        if not self._claim.still_mine():
            raise self._lost()

    def note_error(self) -> None:
        """Send a heartbeat that counts an unexpected error; ``unexpected_errors`` is then this worker's total."""
        self.heartbeat(unexpected=True)

    def heartbeat(self, lease: float | None = None, *, unexpected: bool = False) -> None:
        """Hold the task for ``lease`` seconds from now, never past its timeout.

        By default the lease is the one asked for last, in the claim or a heartbeat; else the task's or its queue's. A
        worker that is no longer in the task's ``worker_ids`` loses the claim. ``unexpected``: see :meth:`note_error`.
        """
        longest = claims.longest_lease(type(self.task), using=self._using)
        check_lease(lease, longest)
        settings, sent = load_settings(), time.monotonic()
        build = partial(_renewal, longest=longest, settings=settings, using=self._using)
        values = {"worker": self.worker, "lease": lease}
        held = claims.hold(self._claim, (settings, longest), build, values, HEARTBEAT_FIELDS)
        if held is None:
            if self._claim.still_mine():
                self._end(claims.Released(), runs.ended("waited", "no longer allowed"))
                self.ended, self._is_lost = False, True
                raise LeaseLost(f"task {self.task.pk} is for other workers now than {self.worker}")
            raise self._lost()
        if unexpected:
            self.unexpected_errors = self._count_error()
        self._note_hold(sent, *held)

    def _note_hold(self, sent: float, now: datetime, until: datetime, *followed: float | None) -> None:
        for name, value in zip(FOLLOWED, followed, strict=True):
            setattr(self.task, name, value)
        self.lease, self._since = (until - now).total_seconds(), sent
        if self.lease <= 0:
            # The timeout was shortened to less than the attempt has taken already.
            raise self._lost()

    def resolve(self, result: Json = None) -> None:
        """Complete the task, with a result that JSON can express."""
        settings = load_settings()
        check_json("result", result, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
        self._end(claims.moved(self._claim, "completed", {"result": result}), runs.ended("succeeded"))

    def release(self, reason: str = "") -> None:
        """Return the task for another worker; if that was its last attempt, it becomes errored."""
        self._give_up("released", bounded(str(reason), runs.REASON_LENGTH), None)

    def fail(self, error: BaseException | str) -> None:
        """End the attempt as failed: like :meth:`release`, but the error is recorded."""
        failure = _failure(error)
        told = failure.traceback or f"{failure.kind}: {failure.message}"
        self._give_up("failed", bounded(told, runs.REASON_LENGTH), failure)

    def cancel(self, reason: str = "") -> None:
        """Cancel the task: it need not be done at all."""
        told = bounded(str(reason), runs.REASON_LENGTH)
        self._end(claims.moved(self._claim, "canceled"), runs.ended("canceled", told))

    def hand_back(self) -> None:
        """Return a task that was not begun, as if it had never been claimed: no attempt counts, and no rejection."""
        written = self._end(claims.Released(), runs.FORGOTTEN)
        if written and written.at:
            self.left = {"state_ready": True, "state_attempts": self.attempt - 1}

    async def averify(self) -> None:
        """Run :meth:`verify` from async code."""
        await sync_to_async(self.verify)()

    async def aheartbeat(self, lease: float | None = None) -> None:
        """Run :meth:`heartbeat` from async code."""
        await sync_to_async(self.heartbeat)(lease)

    async def aresolve(self, result: Json = None) -> None:
        """Run :meth:`resolve` from async code."""
        await sync_to_async(self.resolve)(result)

    async def arelease(self, reason: str = "") -> None:
        """Run :meth:`release` from async code."""
        await sync_to_async(self.release)(reason)

    async def afail(self, error: BaseException | str) -> None:
        """Run :meth:`fail` from async code."""
        await sync_to_async(self.fail)(error)

    async def acancel(self, reason: str = "") -> None:
        """Run :meth:`cancel` from async code."""
        await sync_to_async(self.cancel)(reason)

    async def ahand_back(self) -> None:
        """Run :meth:`hand_back` from async code."""
        await sync_to_async(self.hand_back)()

    @property
    def _using(self) -> str:
        return str(self.task._state.db)

    @property
    def _rows(self) -> QuerySet[Any]:
        return QuerySet(type(self.task), using=self._using)

    @property
    def _run(self) -> QuerySet[Any]:
        runs = run_rows(self._using)
        # Tasks that were claimed together share one token.
        return runs.filter(task=self.task.pk, token=self.token)

    def _count_error(self) -> int:
        self._run.update(unexpected_errors=F("unexpected_errors") + 1)
        runs = run_rows(self._using)
        mine = runs.filter(task=self.task.pk, worker=self.worker, version=self.task.state_version)
        return int(mine.aggregate(count=Sum("unexpected_errors"))["count"] or 0)

    def _give_up(self, outcome: str, reason: str, failure: Failure | None) -> None:
        settings, records = load_settings(), runs.ended(outcome, reason)
        left = claims.Only(("attempts left", settings), partial(attempts_left, settings))
        written = self._end(claims.Waiting(0.0, failure, reason[:500]), records, left)
        if written is None:
            self._end(claims.moved(self._claim, "errored", failure=failure), records)
        elif written.at:
            self.left = {"state_ready": True, "state_next_attempt": written.at}

    def _end(
        self, outcome: claims.Outcome, records: claims.ProgramRecords, only: claims.Only | None = None
    ) -> claims.Written | None:
        written = claims.end([(self._claim, outcome)], records, only=only)
        if written is None:
            return None
        if written.lost:
            raise self._lost()
        self.ended = True
        return written

    def _lost(self) -> LeaseLost:
        """Note that the claim is lost, and return the error for its holder; it says what became of the task."""
        self._is_lost = True
        found = self._rows.filter(pk=self.task.pk).first()
        if found is None:
            why = "the task is gone"
        elif found.state_claim == self.token:
            why = "its lease ran out"
        elif found.state_claim is not None:
            why = "another worker holds it"
        else:
            why = f"the task is {found.status}"
        return LeaseLost(f"task {self.task.pk} is not held by this claim any more: {why}; nothing was changed")


def claim(
    queue: QueueRow, worker: str, limit: int, lease: float | None, metadata: dict[str, Any] | None
) -> list[TaskClaim]:
    """Claim up to ``limit`` tasks of a queue for a worker, most urgent first."""
    settings = load_settings()
    model, using = queue.tasks.model, queue._state.db
    check_worker(worker)
    check_lease(lease, claims.longest_lease(model, using=using))
    check_metadata({} if metadata is None else metadata, settings.METADATA_LIMIT)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= settings.CLAIM_LIMIT:
        raise TaskError(f"limit={limit!r} must be a whole number from 1 to {settings.CLAIM_LIMIT}")
    held, seen = single_statement.claim(queue, worker, worker_digits(worker), limit, lease, metadata, settings)
    if held:
        if not seen:
            queue.note_worker(worker)
        return [TaskClaim(each, worker) for each in held]
    take = partial(_take, worker=worker, lease=lease, metadata=metadata or {})
    # A copy in each database has its own configuration, so no database depends on another.
    if queue.databases or (queue := queue.current(asking=worker)).databases:
        return shards.gather(queue, limit, take)
    return take(queue, limit)


def _take(queue: QueueRow, limit: int, worker: str, lease: float | None, metadata: dict[str, Any]) -> list[TaskClaim]:
    """Claim from the database of this copy of the queue, whose configuration is current."""
    model, using = queue.tasks.model, queue._state.db
    queue.note_worker(worker)
    if queue.claiming_paused:
        return []
    if claims.bring_up(model, using=using):
        model.objects.using(using).end_exhausted(queue)
    for attempt in range(1, TRIES + 1):
        try:
            with shards.alone(queue):
                found, put_off = _claim(queue, worker, limit, lease, metadata)
            if found or not put_off:
                return found
        except DatabaseError as error:
            if not (isinstance(error, IntegrityError) or claims.is_retryable(error)):
                raise
            if attempt == TRIES and not isinstance(error, IntegrityError):
                raise
    # On every try other workers were faster, or all claimed tasks were put off: nothing is left for this worker.
    return []


def _renewal(worker: Any, lease: Any, *, longest: float, settings: TaskSettings, using: str) -> claims.Renewal:
    """Return a heartbeat's renewal; the worker and the lease are values or parameters."""
    run = run_rows(using).filter(task=OuterRef("pk"), token=OuterRef("state_claim"))
    until = renewed_end(lease, longest, settings, queue_rows(using), run)
    given = {} if lease is None else {"lease": lease}
    records = claims.ProgramRecords(Run, "task", "token", {"lease_until": "state_locked_until"}, given)
    return claims.Renewal(until, allowed(worker), records, FOLLOWED)


def _failure(error: BaseException | str) -> Failure:
    if isinstance(error, BaseException):
        return describe(error)
    text = bounded(str(error), runs.REASON_LENGTH)
    digest = sha256(text.encode()).hexdigest()[:16]
    return Failure("tasks.Failed", text[:1000], "", digest)


def _claim(
    queue: QueueRow, worker: str, limit: int, lease: float | None, metadata: dict[str, Any]
) -> tuple[list[TaskClaim], bool]:
    """Return new claims, and whether tasks were put off because the limits of their actions are used up."""
    model, using, settings = queue.tasks.model, str(queue._state.db), load_settings()
    put_off: list[claims.Claim] = []

    def note(found: list[claims.Claim]) -> list[claims.Claim]:
        kept = _without_second_parts(queue, worker, found)
        put_off[:] = _put_off(queue, kept)
        kept = [claim for claim in kept if claim not in put_off]
        runs.note(kept, worker, lease, using)
        return kept

    def lock() -> bool:
        # The lock comes before the check. So if one worker claims twice at once, the second claim sees the first.
        queue.lock()
        return not shards.is_held(queue, worker)

    since = time.monotonic()
    found = claims.claim(
        model,
        1 if queue.one_per_worker else limit,
        pick=picker(queue, worker, metadata, settings),
        lease=lease_end(lease, claims.longest_lease(model, using=using), settings, queue),
        worker=worker_digits(worker),
        using=using,
        first=lock if queue.one_per_worker else None,
        then=note,
        among=in_line(queue, metadata) if metadata else None,
    )
    for claim in found:
        claim.instance.queue = queue
    return [TaskClaim(claim, worker, since) for claim in found], bool(put_off)


def _put_off(queue: QueueRow, found: list[claims.Claim]) -> list[claims.Claim]:
    """Put off the tasks whose actions have used up their rate or concurrency, and return their claims.

    The limits are declared in the code of this process. They are taken in the order of their keys, so that two claims
    do not wait for each other.
    """
    limited = []
    for claim in found:
        action = declared(claim.instance.action, queue.name)
        if action is not None and action.throttled and (key := _key_of(action, claim.instance)) is not None:
            limited.append((key, claim.pk, action, claim))
    refused = []
    for _, _, action, claim in sorted(limited, key=itemgetter(0, 1)):
        wait, _ = ActionSlot.admit(action, claim.instance, claim.token)
        if wait:
            claims.end([(claim, claims.Released(wait))])
            refused.append(claim)
    return refused


def _key_of(action: Action, task: TaskRow) -> str | None:
    """Return the key under which a task counts; None if the project's function fails, which must not stop the queue."""
    try:
        return action.throttle_key(task)
    except Exception:
        logger.exception("tasks.key_failed", extra={"action": action.name, "task": task.pk})
        return None


def _without_second_parts(queue: QueueRow, worker: str, found: list[claims.Claim]) -> list[claims.Claim]:
    """Drop claims on parts of a shared task if the worker holds another part of it, even by a concurrent claim.

    The shared task is not locked, because other transactions lock its parts after it.
    """
    wholes = {claim.instance.whole_id for claim in found} - {None}
    if not wholes:
        return found
    # A concurrent claim for the same worker waits here, and then sees what was claimed.
    queue.lock_worker(worker)
    tokens = {claim.token for claim in found}
    runs = run_rows(queue._state.db)
    held = runs.filter(worker=worker, task__whole__in=wholes, task__state_claim=F("token")).exclude(token__in=tokens)
    taken = set(held.values_list("task__whole", flat=True))
    kept = []
    for claim in found:
        whole = claim.instance.whole_id
        if whole is None or whole not in taken:
            kept.append(claim)
            taken.add(whole)
    return kept
