"""Deletion of tasks whose retention is over, in batches."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connections, transaction
from django.db.models import Exists, F, Max, Min, Model, OuterRef, Q, QuerySet
from django.db.models.functions import Least

from stator.graph.backoff import MAX_SECONDS
from stator.models import in_parts
from stator.rows.deletions import Retention, note_deleted
from stator.rows.record_tables import RECORD_TABLES
from stator.scopes import KEPT_UP, ends_in_parts, keep_up
from tasks.conf import load_settings
from tasks.models import Claimant, Queue, Run, Task
from tasks.queue.task_parts import KIND
from tasks.rows import idle
from tasks.rows.clock import Later
from tasks.rows.tables import run_rows
from tasks.rows.tasks import NO_PART, TERMINAL

# The most tasks, and the most parts of shared tasks, in one transaction.
BATCH = 1000

# The terminal states other than errored.
NOT_FAILED = [state for state in TERMINAL if state != "errored"]

# The most batches per queue and call; the next pass deletes the rest.
BATCHES = 50


# What extensions have: the conditions of tasks that may go, and what else is deleted then, of each database.
LET_GO: list[Callable[[str], Q]] = []
FURTHER: list[Callable[[str], object]] = []


def prune(using: str) -> int:
    """Delete ended tasks past their retention, with their history and reports; return how many tasks.

    A task's own retention applies, else its queue's, else the setting's. For errored tasks, the failed retention of the
    queue or of the setting comes before the last two. Parts are deleted before their shared task, which nobody can
    requeue from then on.
    """
    settings = load_settings()
    let_go = [may_go(using) for may_go in LET_GO]
    ended: QuerySet[Task] = QuerySet(Task, using=using).filter(*let_go, NO_PART, state__in=TERMINAL, state_claim=None)
    deleted = Counter[Retention]()
    own_end = ended.filter(retention__isnull=False, state_changed__lte=_ago(F("retention")))
    deleted[Retention("retention", "the task")] = _prune(using, own_end)
    for queue, name, *own in Queue.objects.using(using).values_list("pk", "name", "retention", "failed_retention"):
        rows = ended.filter(queue=queue, retention=None)
        seconds, of_failed = _seconds(own[0], settings.RETENTION), _seconds(own[1], settings.FAILED_RETENTION)
        if of_failed not in (None, seconds):
            failed = rows.filter(state="errored", state_changed__lte=Later(-of_failed))
            deleted[Retention("failed_retention", f"queue {name}")] += _prune(using, failed)
            rows = rows.filter(state__in=NOT_FAILED)
        deleted[Retention("retention", f"queue {name}")] += _prune(
            using, rows.filter(state_changed__lte=Later(-seconds))
        )
    note_deleted(using, Task._meta.label_lower, deleted)
    for delete in FURTHER:
        delete(using)
    _forget_claimants(using)
    return deleted.total()


def _forget_claimants(using: str) -> None:
    # Programs may use a new name at each start, so there may be many. The index is ``tasks_claimant_seen``.
    for _ in range(BATCHES):
        if idle.delete_idle(Claimant.objects.using(using), "seen") < idle.AT_ONCE:
            break


def _seconds(own: float | None, default: float | None) -> Any:
    # Clamped: an unchecked value that a database cannot subtract must not stop the pruning of other queues.
    return default if own is None else max(0.0, min(MAX_SECONDS, own))


def _ago(seconds: F) -> Later:
    return Later(-1 * Least(seconds, MAX_SECONDS))


def _prune(using: str, rows: QuerySet[Model]) -> int:
    total = 0
    for part in in_parts(rows):
        for _ in range(BATCHES):
            deleted, more = _delete(using, part)
            total += deleted
            if not more:
                break
    return total


def _delete(using: str, rows: QuerySet[Model]) -> tuple[int, bool]:
    """Delete one batch; return how many tasks, and whether there may be more.

    Rows that another transaction deletes or requeues at the same time are skipped. Shared tasks that have further parts
    are left for the next batch.
    """
    skip = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        locked = rows.order_by().select_for_update(skip_locked=skip).values_list("pk", flat=True)
        pks = list(locked[:BATCH])
        if not pks:
            return 0, False
        every: QuerySet[Model] = QuerySet(Task, using=using)
        parts, further = KIND.parts.to_delete(every, pks, BATCH)
        delete_with_records(every, parts)
        done = [pk for pk in pks if pk not in further]
        delete_with_records(every, done)
    return len(done), len(pks) == BATCH or len(parts) == BATCH


def delete_with_records(rows: QuerySet[Model], pks: list[int]) -> None:
    """Delete rows with their history and reports."""
    if not pks:
        return
    of_these = Q(model_label=rows.model._meta.label_lower, object_pk__in=[str(pk) for pk in pks])
    # History in partitions stays until its partition is dropped, as do runs.
    for table in RECORD_TABLES:
        if table.outlives and not ends_in_parts(table.model, rows.db):
            QuerySet(table.model, using=rows.db).filter(of_these).delete()
    rows.filter(pk__in=pks).delete()


def connect() -> None:
    """Let workers keep up the parts of the table of runs, if it has some."""
    KEPT_UP.append(_keep_up_runs)


def _keep_up_runs(using: str) -> int:
    return keep_up(Run, using, 0.0, partial(_is_of_no_task, using))


def _is_of_no_task(using: str, part: Any) -> bool:
    """Return whether all tasks are deleted that have runs in a part of the table.

    Nearly all are deleted when it ended long ago, so the remaining ones of that time are looked up in it.
    """
    runs = run_rows(using)
    if part.lower:
        runs = runs.filter(claimed__gte=part.lower)
    runs = runs.filter(claimed__lt=part.upper)
    ends = runs.aggregate(first=Min("task"), last=Max("task"))
    tasks: QuerySet[Model] = QuerySet(Task, using=using).filter(pk__gte=ends["first"] or 0, pk__lte=ends["last"] or 0)
    return not tasks.filter(Exists(runs.filter(task=OuterRef("pk")))).exists()
