"""What people and publishers do with tasks from outside: cancel them, have them run again. Never what a holder does."""

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from tasks.exceptions import MoveRefused

FAILED, SUCCEEDED = ("errored", "canceled"), ("completed",)


def cancel(task: Any, *, actor: str, reason: str, running: bool) -> None:
    """Cancel a task that waits, with its parts; with ``running`` also one that is held, whose holder loses it."""
    statuses = ("invisible", "pending", "running") if running else ("invisible", "pending")
    with transaction.atomic(using=task._state.db):
        open_rows = _rows(task).filter(pk=task.pk).with_status(*statuses)
        held = _held(task) if running else []
        if not _move(task, open_rows, "canceled", actor, reason):
            raise MoveRefused(
                f"task {task.pk} is {_status(task)}; only one that is {' or '.join(statuses)} is canceled"
            )
        _runs(task).filter(Q(task=task.pk) | Q(task__whole=task.pk), token__in=held, ended=None).update(
            ended=Now(), outcome="canceled", reason=reason or "canceled by others"
        )
    task.refresh_from_db()


def requeue(task: Any, *, actor: str, reason: str) -> None:
    """Have a dead letter wait again with all its attempts, for every worker that may claim it."""
    if task.whole_id is not None:
        raise MoveRefused(f"task {task.pk} is a part of task {task.whole_id}; requeue that")
    with transaction.atomic(using=task._state.db):
        if not _reopen(task, ("errored",), FAILED, actor, reason or "requeued"):
            raise MoveRefused(f"task {task.pk} is {_status(task)}; only one that is errored is requeued")
    task.refresh_from_db()


def clear(task: Any, *, failed: bool, succeeded: bool) -> bool:
    """Forget the workers that failed, or succeeded, so that they may run it again; return whether anything changed.

    A task that ended so waits again; one that runs is left alone.
    """
    if task.status == "running":
        return False
    states = (FAILED if failed else ()) + (SUCCEEDED if succeeded else ())
    if task.state in states:
        return _reopen(task, (task.state,), states, "", "published again")
    if task.state not in ("pending", "shared"):
        return False
    if task.worker_count > 1:
        parts = _rows(task).filter(whole=task.pk, state__in=states)
        _move(task, parts, "pending", "", "published again")
    if failed:
        _forget_failures(task)
    return True


def _forget_failures(task: Any) -> None:
    """The claims so far do not count any more: neither as attempts nor against those who made them."""
    waiting: QuerySet[Any] = QuerySet(type(task), using=task._state.db)
    waiting = waiting.filter(Q(pk=task.pk) | Q(whole=task.pk), state="pending", state_claim=None)
    pks = list(waiting.select_for_update().values_list("pk", flat=True))
    waiting.filter(pk__in=pks).update(state_attempts=0, state_failures=0)
    _runs(task).filter(task__in=pks).exclude(outcome="succeeded").update(version=None)


def _reopen(task: Any, states: tuple[str, ...], parts: tuple[str, ...], actor: str, reason: str) -> bool:
    back = "shared" if task.worker_count > 1 else "pending"
    if not _move(task, _rows(task).filter(pk=task.pk, state__in=states), back, actor, reason):
        return False
    plain: QuerySet[Any] = QuerySet(type(task), using=task._state.db)
    plain.filter(pk=task.pk).update(notice_due=Now(), result=None)
    if back == "shared":
        _move(task, _rows(task).filter(whole=task.pk, state__in=parts), "pending", actor, reason)
    return True


def _held(task: Any) -> list[Any]:
    rows: QuerySet[Any] = QuerySet(type(task), using=task._state.db)
    claimed = rows.filter(Q(pk=task.pk) | Q(whole=task.pk), state_claim__isnull=False)
    return list(claimed.values_list("state_claim", flat=True))


def _move(task: Any, rows: Any, state: str, actor: str, reason: str) -> int:
    moved: int = type(task).transition_perform_queryset(rows, state, actor=actor, reason=reason)
    return moved


def _status(task: Any) -> str:
    found = _rows(task).filter(pk=task.pk).first()
    return found.status if found else "gone"


def _rows(task: Any) -> Any:
    return type(task).objects.using(task._state.db)


def _runs(task: Any) -> QuerySet[Any]:
    return QuerySet(type(task).runs.rel.related_model, using=task._state.db)
