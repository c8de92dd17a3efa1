"""Moves of tasks by operators and publishers: cancel and requeue. Moves by a claim's holder are in ``held_claims``."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from django.db import transaction
from django.db.models import Model, QuerySet

from stator.models import Action, Now, in_parts, move_rows, remembered
from tasks.exceptions import MoveRefused
from tasks.queue import runs
from tasks.queue.task_parts import KIND, AuthorAndReason, Note
from tasks.rows.runs import forgotten
from tasks.rows.tables import run_rows, task_model, task_rows
from tasks.rows.tasks import TERMINAL, WAITS_AGAIN, TaskRow

if TYPE_CHECKING:
    from tasks.querysets import TaskQuerySet

FAILED, SUCCEEDED = ("errored", "canceled"), ("completed",)


# The options of moves of tasks that are published again.
AGAIN: Note = {"reason": "published again", "start_over": True}

# Rows per transaction of an action on many tasks.
BATCH = 500


@dataclass(frozen=True, slots=True)
class Requeued:
    """How many dead letters were requeued, and when the last is due; None if all are due at once."""

    count: int
    last_due: datetime | None = None


def cancel(task: TaskRow, *, actor: str, reason: str, running: bool) -> None:
    """Cancel a waiting task and its parts; with ``running`` also a claimed one, whose worker then loses its claim."""
    if not cancel_many(_rows(task), [task.pk], actor=actor, reason=reason, running=running):
        statuses = " or ".join(cancelable(running))
        raise MoveRefused(f"task {task.pk} is {_status(task)}; only a task that is {statuses} can be canceled")
    _read_again(task)


def cancel_many(rows: "TaskQuerySet", pks: Sequence[int], *, running: bool, **note: Unpack[AuthorAndReason]) -> int:
    """Cancel the tasks with these keys, except those whose status does not allow it; return how many."""
    canceled = 0
    for batch in _batches(rows, pks):
        with transaction.atomic(using=rows.db):
            # Like each statement of a worker, this locks a task before its runs. Otherwise both could deadlock.
            KIND.parts.lock(rows.filter(pk__in=batch))
            meant = list(rows.filter(pk__in=batch).with_status(*cancelable(running)).values_list("pk", flat=True))
            parts = KIND.parts.open(rows.db, meant)
            ending = [*meant, *parts]
            claimed = task_rows(rows.db).filter(pk__in=ending, state_claim__isnull=False)
            if running:
                runs.keep(claimed)
                run_rows(rows.db).filter(task__in=ending, token__in=claimed.values("state_claim"), ended=None).update(
                    ended=Now(), outcome="canceled", reason=note.get("reason") or "canceled by others"
                )
            canceled += move_rows(task_rows(rows.db).filter(pk__in=meant), "canceled", **note)
            KIND.parts.cancel(rows.db, parts, note)
    return canceled


def _read_again(task: TaskRow) -> None:
    with remembered(str(task._state.db), [task]):
        task.refresh_from_db(task._state.db)


def requeue(task: TaskRow, *, actor: str, reason: str, start_over: bool) -> None:
    """Requeue a dead letter with all its attempts, for every worker that may claim it.

    ``start_over``: recorded steps are run again.
    """
    KIND.parts.refuse(task, "requeue")
    if not requeue_many(_rows(task), [task.pk], actor=actor, reason=reason, start_over=start_over).count:
        if (status := _status(task)) == "errored":
            raise MoveRefused(f"task {task.pk} is being deleted, since its retention is over; publish a new task")
        raise MoveRefused(f"task {task.pk} is {status}; only an errored task can be requeued")
    _read_again(task)


def requeue_many(
    rows: "TaskQuerySet",
    pks: Sequence[int],
    *,
    actor: str,
    reason: str,
    action: Action | None = None,
    per_minute: float | None = None,
    start_over: bool = False,
) -> Requeued:
    """Requeue the dead letters with these keys, in this order.

    Parts of shared tasks are left out, and tasks that are being deleted.

    ``per_minute``: how many become due per minute, the first at once; None: all become due at once. ``start_over``:
    recorded steps are run again.
    """
    count, begun, last = 0, None, None
    for batch in _batches(rows, pks):
        with transaction.atomic(using=rows.db):
            chosen: dict[int, datetime] = {}
            for part in in_parts(rows.filter(pk__in=batch).dead_letters()):
                chosen |= dict(part.order_by("pk").select_for_update().values_list("pk", Now()))
            for pk in KIND.parts.lacking(rows, chosen):
                del chosen[pk]
            if not chosen:
                continue
            begun = begun or next(iter(chosen.values()))
            note: Note = {
                "actor": actor, "reason": reason or "requeued", "action": action, "start_over": start_over
            }  # fmt: skip
            _let_wait(rows, chosen, FAILED, note)
            if per_minute is not None:
                pace = timedelta(minutes=1 / per_minute)
                dues = {pk: begun + pace * (count + n) for n, pk in enumerate(pk for pk in batch if pk in chosen)}
                _postpone(rows, dues)
                last = max(dues.values())
        count += len(chosen)
    return Requeued(count, last)


def _let_wait(rows: "TaskQuerySet", ended: Collection[int], states: tuple[str, ...], note: Note) -> None:
    """Let locked tasks that have ended wait again, and their parts in these states."""
    single = set(ended) - KIND.parts.let_wait(rows, ended, states, note)
    move_rows(rows.filter(pk__in=single), "pending", **note)
    task_rows(rows.db).filter(pk__in=ended).update(**WAITS_AGAIN)


def _postpone(rows: QuerySet[Model], dues: dict[int, datetime]) -> None:
    """Postpone waiting tasks and their parts to these times."""
    dues = dues | KIND.parts.postponed(rows.db, dues)
    waiting = task_rows(rows.db).filter(pk__in=dues, state="pending")
    late = [task_model()(pk=pk, state_next_attempt=dues[pk]) for pk in waiting.values_list("pk", flat=True)]
    waiting.update(state_ready=False)
    task_rows(rows.db).bulk_update(late, ["state_next_attempt"], batch_size=BATCH)


def clear(task: TaskRow, *, failed: bool, succeeded: bool) -> bool:
    """Let workers that failed, or succeeded, run a locked task again; return whether anything changed.

    A task that ended that way is requeued; a running one is left alone.
    """
    if task.status == "running":
        return False
    states = (FAILED if failed else ()) + (SUCCEEDED if succeeded else ())
    if KIND.parts.of(task) and KIND.parts.lacking(_rows(task), [task.pk]):
        return False
    if task.state in states:
        _let_wait(_rows(task), [task.pk], states, AGAIN)
        return True
    if task.state in TERMINAL:
        return False
    KIND.parts.let_parts_wait(task, states, AGAIN)
    if failed:
        _forget_failures(task)
    return True


def _forget_failures(task: TaskRow) -> None:
    """Stop counting the claims so far, as attempts and against their workers."""
    own = task_rows(task._state.db).filter(KIND.parts.with_own(task.pk))
    waiting = own.filter(state="pending", state_claim=None)
    pks = list(waiting.values_list("pk", flat=True))
    waiting.filter(pk__in=pks).update(state_attempts=0, state_failures=0)
    counted = run_rows(task._state.db).filter(task__in=pks, version__gte=0)
    counted.exclude(outcome="succeeded").update(version=forgotten())


def cancelable(running: bool) -> tuple[str, ...]:
    """Return the statuses of tasks that can be canceled."""
    return ("invisible", "pending", "running") if running else ("invisible", "pending")


def _batches(rows: QuerySet[Model], pks: Sequence[int]) -> Iterator[list[int]]:
    """Yield the keys in batches of up to ``BATCH`` rows, parts included."""
    batch: list[int] = []
    size = 0
    for start in range(0, len(pks), BATCH):
        some = pks[start : start + BATCH]
        sizes = KIND.parts.sizes(rows, some)
        for pk in some:
            if batch and size + sizes.get(pk, 1) > BATCH:
                yield batch
                batch, size = [], 0
            batch.append(pk)
            size += sizes.get(pk, 1)
    if batch:
        yield batch


def _status(task: TaskRow) -> str:
    current = _rows(task).filter(pk=task.pk).first()
    return current.status if current else "gone"


def _rows(task: TaskRow) -> "TaskQuerySet":
    return task_model().objects.using(task._state.db)
