"""Claims that named workers hold: what they may do, and how they are found and ended, one or many at a time."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from uuid import UUID

from django.db.models import CharField, Expression, F, Field, FloatField, OuterRef, Q, Sum

from stator import claims
from stator.asynchronous import in_thread
from stator.claims import Failure, bounded, describe
from stator.exceptions import LeaseLost
from stator.models import remembered
from stator.texts import JsonInput
from tasks.client.consuming import LoopClaim  # tasks.extensions.consume
from tasks.conf import TaskSettings, load_settings
from tasks.extensions.progress.claims import SaysTaskProgress
from tasks.extensions.steps.claims import DoesTaskSteps
from tasks.messages import check_json, check_lease, is_same_json
from tasks.queue import runs
from tasks.queue.eligibility import Lease, WorkerName, allowed, attempts_left, renewed_end
from tasks.queue.kept_runs import FORGOTTEN, HELD_AS_BEFORE, HELD_FOR, Ending
from tasks.rows.queues import QueueRow
from tasks.rows.tables import queue_rows, run_rows, task_rows
from tasks.rows.tasks import TaskRow

# The results of claims by task; None if their ends have none.
Results = Mapping[int, object] | None

# Returns columns of a task whose claim has ended at a time.
Left = Callable[[datetime], dict[str, object]]

# The columns of the task that a heartbeat reads anew.
FOLLOWED = ("heartbeat_interval", "max_unexpected_retries")

SUCCEEDED = Ending("succeeded")

HEARTBEAT_FIELDS: dict[str, Field] = {"worker": CharField(), "lease": FloatField()}


class TaskClaim(
    SaysTaskProgress,  # tasks.extensions.progress
    DoesTaskSteps,  # tasks.extensions.steps
    LoopClaim,  # tasks.extensions.consume
):
    """A task that a worker holds until it ends the claim, or its lease or its timeout runs out.

    Every method but ``verify`` writes, and only while the claim is held. Otherwise it raises
    :class:`~stator.exceptions.LeaseLost`, which says what became of the task, and nothing is changed.

    ``attempt``: 1 for the first.
    ``lease``: seconds from the claim, or the latest heartbeat, until it runs out.
    """

    def __init__(self, claim: claims.Claim, worker: str) -> None:
        # The lease counts from before the statement that took it.
        self._since, self.ended, self._is_lost, self.unexpected_errors = claim.claimed, False, False, 0
        self._claim = claim
        self.worker = worker
        self.task = claim.instance
        self._using = str(self.task._state.db)
        self.token: UUID = claim.token
        self.attempt: int = claim.attempt
        self.lease = (self.task.state_locked_until - self.task.state_attempted).total_seconds()
        self.heartbeat_interval = self.task.heartbeat_interval
        self.max_unexpected_retries = self.task.max_unexpected_retries
        # The task's columns as the end of the claim has written them, if the task waits again and they are known.
        self.left: dict[str, object] | None = None

    def __repr__(self) -> str:
        return f"<TaskClaim of task {self.task.pk} by {self.worker}, attempt {self.attempt}>"

    def verify(self) -> None:
        """Raise ``LeaseLost`` unless the claim is still held. Call it right before an action that cannot be undone."""
        if not self._claim.still_mine():
            raise self._lost()

    def take_news(self, name: str, *values: object) -> None:
        """Remember what the work says of itself; the next heartbeat writes it."""
        self._claim.take_news(name, *values)

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
        held = claims.hold(
            self._claim,
            (settings, longest),
            partial(_renewal, longest=longest, settings=settings, using=self._using),
            {"worker": self.worker, "lease": lease},
            HEARTBEAT_FIELDS,
            also=HELD_AS_BEFORE if lease is None else HELD_FOR,
            then=partial(runs.held, self._claim, lease, self._using),
            returned=FOLLOWED,
        )
        if held is None:
            if self._claim.still_mine():
                self._end(claims.Released(), Ending("waited", "no longer allowed"))
                self.ended, self._is_lost = False, True
                raise LeaseLost(f"task {self.task.pk} is for other workers now than {self.worker}")
            raise self._lost()
        with remembered(self._using, [self, self.task]):
            if unexpected:
                self.unexpected_errors = self._count_error()
            self._note_hold(sent, *held)
        self._claim.show_news()

    def _note_hold(self, sent: float, now: datetime, until: datetime, *followed: object) -> None:
        for name, value in zip(FOLLOWED, followed, strict=True):
            setattr(self.task, name, value)
            setattr(self, name, value)
        self.lease, self._since = (until - now).total_seconds(), sent
        if self.lease <= 0:
            # The timeout was shortened to less than the attempt has taken already.
            raise self._lost()

    def resolve(self, result: JsonInput = None) -> None:
        """Complete the task, with a result that JSON can express."""
        settings = load_settings()
        check_json("result", result, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
        self._end(claims.moved(self._claim, "completed", {"result": result}), SUCCEEDED)

    def release(self, reason: str = "") -> None:
        """Return the task for another worker; if that was its last attempt, it becomes errored."""
        self._give_up("released", bounded(str(reason), runs.REASON_LENGTH), None)

    def fail(self, error: BaseException | str) -> None:
        """End the attempt as failed: like :meth:`release`, but the error is recorded."""
        failure = _failure(error)
        text = failure.traceback or f"{failure.kind}: {failure.message}"
        self._give_up("failed", bounded(text, runs.REASON_LENGTH), failure)

    def cancel(self, reason: str = "") -> None:
        """Cancel the task: it need not be done at all."""
        text = bounded(str(reason), runs.REASON_LENGTH)
        self._end(claims.moved(self._claim, "canceled"), Ending("canceled", text))

    def hand_back(self) -> None:
        """Return a task that was not begun, as if it had never been claimed: no attempt counts, and no rejection."""
        left: dict[str, object] = {"state_ready": True, "state_attempts": self.attempt - 1}
        self._end(claims.Released(), FORGOTTEN, lambda at: left)

    averify = in_thread(verify)
    aheartbeat = in_thread(heartbeat)
    aresolve = in_thread(resolve)
    arelease = in_thread(release)
    afail = in_thread(fail)
    acancel = in_thread(cancel)
    ahand_back = in_thread(hand_back)

    def _count_error(self) -> int:
        of_task = run_rows(self._using).filter(task=self.task.pk)
        of_task.filter(token=self.token).update(unexpected_errors=F("unexpected_errors") + 1)
        mine = of_task.filter(worker=self.worker, version=self.task.state_version)
        return int(mine.aggregate(count=Sum("unexpected_errors"))["count"] or 0)

    def _give_up(self, outcome: str, reason: str, failure: Failure | None) -> None:
        waiting, ending = claims.Waiting(0.0, failure, reason[:500]), Ending(outcome, reason)
        if not self._ended_by(waiting, ending, _left_ready, where=_attempts_left(load_settings())):
            # If the claim has not ended, that was its task's last attempt.
            self._end(claims.moved(self._claim, "errored", failure=failure), ending)

    def _end(self, outcome: claims.Outcome, ending: Ending, left: Left | None = None) -> None:
        if not self._ended_by(outcome, ending, left):
            with remembered(self._using, [self]):
                raise self._lost()

    def _ended_by(
        self, outcome: claims.Outcome, ending: Ending, left: Left | None = None, where: Q | None = None
    ) -> bool:
        """End the claim and return True if it is held; ``left`` returns the task's columns at the time of the end."""
        with remembered(self._using, [self]):
            written = claims.end([(self._claim, outcome)], ending, where=where)
            self.ended = not written.lost
            if left and written.at:
                self.left = left(written.at)
        return self.ended

    def _lost(self) -> LeaseLost:
        """Note that the claim is lost, and return the error for its holder; it says what became of the task."""
        self._is_lost = True
        current = task_rows(self._using).filter(pk=self.task.pk).first()
        if current is None:
            why = "the task is gone"
        elif current.state_claim == self.token:
            why = "its lease ran out"
        elif current.state_claim is not None:
            why = "another worker holds it"
        else:
            why = f"the task is {current.status}"
        return LeaseLost(f"task {self.task.pk} is not held by this claim any more: {why}; nothing was changed")


def _renewal(
    worker: WorkerName, lease: Lease, *, longest: float, settings: TaskSettings, using: str
) -> tuple[Expression, Q]:
    """Return the end of a renewed lease, and who may renew it; the worker and the lease are values or parameters."""
    run = run_rows(using).filter(task=OuterRef("pk"), token=OuterRef("state_claim"))
    return renewed_end(lease, longest, settings, queue_rows(using), run), allowed(worker)


def _left_ready(at: datetime) -> dict[str, object]:
    return {"state_ready": True, "state_next_attempt": at}


# One object for equal settings.
_attempts_left = lru_cache(maxsize=8)(attempts_left)


def _failure(error: BaseException | str) -> Failure:
    if isinstance(error, BaseException):
        return describe(error)
    text = bounded(str(error), runs.REASON_LENGTH)
    digest = sha256(text.encode()).hexdigest()[:16]
    return Failure("tasks.Failed", text[:1000], "", digest)


def of_row(task: TaskRow, token: UUID, worker: str | None) -> TaskClaim:
    """Return the claim of a task that was just read, and of its holder's name ``worker``; raise ``LeaseLost``."""
    return _named(claims.of_instance(task, token), worker)


def _named(held: claims.Claim, worker: str | None) -> TaskClaim:
    if worker is None:
        raise LeaseLost(f"task {held.pk} is held by a worker process, and not by a worker with a name")
    return TaskClaim(held, worker)


def find_many(queue: QueueRow, tokens: Mapping[int, UUID]) -> list[TaskClaim]:
    """Return the claims in a queue with these tokens, given by task number. Claims that have ended are left out."""
    model, using = queue.tasks.model, str(queue._state.db)
    held = [each for each in claims.find_many(model, tokens, using=using) if each.instance.queue_id == queue.pk]
    workers = runs.holders({each.instance.pk: each.token for each in held}, using)
    return [TaskClaim(each, workers[pk]) for each in held if (pk := each.instance.pk) in workers]


def were_ended(queue: QueueRow, tokens: Mapping[int, UUID], outcome: str, results: Results = None) -> set[int]:
    """Return the tasks whose claims with these tokens ended with this outcome, and with these results if given.

    Their holder has lost the answer and repeats its request.
    """
    return _ended_so(queue._state.db, tokens, outcome, results, task__queue=queue.pk)


def _ended_so(
    using: str | None, tokens: Mapping[int, UUID], outcome: str, results: Results, **conditions: object
) -> set[int]:
    results_of = runs.of_claims(tokens, using, "result", outcome=outcome, **conditions)
    return {pk for pk, result in results_of.items() if results is None or is_same_json(results[pk], result)}


def resolve_many(results: Mapping[TaskClaim, object]) -> list[TaskClaim]:
    """Complete the tasks of many claims, of any queues, each with its result, in few statements.

    Return the claims that were lost, for which nothing was written. In each database, either all other claims are
    written or none; over several nodes, this holds for each part. After an error, repeat the call: it completes
    the rest and has the answer that the first call would have had.
    """
    settings = load_settings()
    ends: dict[str, list[tuple[claims.Claim, claims.Outcome]]] = defaultdict(list)
    for held, result in results.items():
        check_json("result", result, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
        ends[held._using].append((held._claim, claims.moved(held._claim, "completed", {"result": result})))
    for using, each in ends.items():
        mine = [held for held in results if held._using == using]
        with remembered(using, mine):
            lost = set(claims.end(each, SUCCEEDED).lost)
            for held in mine:
                held.ended, held._is_lost = held._claim not in lost, held._claim in lost
    return _lost_of([held for held in results if held._is_lost], "succeeded", results)


def fail_many(errors: Mapping[TaskClaim, BaseException | str]) -> list[TaskClaim]:
    """End many claims, of any queues, without success, each with its error; return the claims that were lost.

    Each claim is a transaction of its own: its task waits again, or is errored if it has no attempts left. A claim that
    failed before is not lost: a repeat after an error has the same answer.
    """
    refused = []
    for held, error in errors.items():
        try:
            held.fail(error)
        except LeaseLost:
            refused.append(held)
    return _lost_of(refused, "failed")


def _lost_of(
    refused: list[TaskClaim], outcome: str, results: Mapping[TaskClaim, object] | None = None
) -> list[TaskClaim]:
    """Return the claims that did not end with this outcome before, and with these results if given."""
    by_database: dict[str, dict[int, TaskClaim]] = defaultdict(dict)
    for held in refused:
        by_database[held._using][held.task.pk] = held
    for using, by_task in by_database.items():
        tokens = {pk: held.token for pk, held in by_task.items()}
        same = None if results is None else {pk: results[held] for pk, held in by_task.items()}
        for pk in _ended_so(using, tokens, outcome, same):
            by_task[pk].ended, by_task[pk]._is_lost = True, False
    return [held for held in refused if held._is_lost]
