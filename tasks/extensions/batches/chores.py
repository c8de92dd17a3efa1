"""What follows failures of tasks in batches, what keeps ended tasks, and the deletion of batches."""

import logging

from django.db import transaction
from django.db.models import Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.lookups import IsNull

from stator.exceptions import TryAgainLater
from stator.models import are_apart
from stator.statements import is_one_of
from tasks.chores.passes import CHORES, FOLLOWS, TaskMoves
from tasks.chores.retention import BATCH, FURTHER, LET_GO, delete_with_records
from tasks.conf import load_settings
from tasks.exceptions import TaskError
from tasks.extensions.batches.models import UNENDED, Batch, BatchGraph
from tasks.models import Task
from tasks.rows.clock import Later
from tasks.rows.tables import Rows, task_rows

logger = logging.getLogger("tasks.batches")

# The most batches whose first failure one call tells; the next call tells the rest.
MAX_TOLD = 100
# Batches that one statement looks into.
AT_ONCE = 10_000


def connect() -> None:
    """Tell first failures after moves and in passes, and delete batches after their tasks."""
    FOLLOWS["errored"].append(_on_failures)
    CHORES.append(tell_first_failures)
    LET_GO.append(let_go)
    FURTHER.append(forget)


def _on_failures(using: str, moved: TaskMoves) -> None:
    # If a task joined a batch while a worker held it, a pass tells of its failure.
    if pks := moved.pks("batch_id"):
        tell_first_failures(using, pks)


def tell_first_failures(using: str, tasks: list[object] | None = None) -> None:
    """Publish ``on_first_failure`` of batches in which a task has failed; ``tasks``: only of their batches.

    If that is not possible now, as in a paused queue, a later call does it. Indexes ``tasks_batch_first_failure`` and
    ``tasks_task_in_batch``.
    """
    untold: QuerySet[Batch] = QuerySet(Batch, using=using).filter(on_first_failure__isnull=False, first_failure=None)
    every = task_rows(using).order_by()
    if tasks is not None:
        batches = set(every.filter(is_one_of(every, tasks), batch__isnull=False).values_list("batch", flat=True))
        if not batches:
            return
        untold = untold.filter(pk__in=batches)
    else:
        # Most have ended so, and no task of theirs is errored.
        untold = untold.exclude(state=BatchGraph.done.name)
    untold = untold.exclude(state=BatchGraph.canceled.name).order_by("pk")
    for batch in untold.filter(pk__in=_with_failures(untold, every)[:MAX_TOLD]):
        try:
            with transaction.atomic(using=using):
                batch.tell_first_failure()
        except (TaskError, TryAgainLater) as error:
            logger.warning("tasks.first_failure_not_told", extra={"batch": batch.pk, "error": str(error)})


def _with_failures(untold: QuerySet[Batch], every: Rows) -> list[int]:
    """Return the first batches among these in which tasks are errored, ``MAX_TOLD`` or some more."""
    failed: list[int] = []
    after, count = 0, AT_ONCE
    while count == AT_ONCE and len(failed) < MAX_TOLD:
        pks = list(untold.filter(pk__gt=after).values_list("pk", flat=True)[:AT_ONCE])
        if pks:
            errored = every.filter(batch__in=pks, state="errored")
            failed += errored.values_list("batch", flat=True).distinct()
            after = pks[-1]
        count = len(pks)
    return failed


def let_go(using: str) -> Q:
    """Return the condition of tasks that may be deleted: those of a batch stay until it has ended."""
    unended: QuerySet[Batch] = QuerySet(Batch, using=using).filter(state__in=UNENDED)
    if are_apart(Task, using):
        return Q(batch=None) | ~Q(batch__in=unended)
    return Q(IsNull(Subquery(unended.filter(pk=OuterRef("batch")).values("pk")), True))


def forget(using: str) -> None:
    """Delete batches that have ended and have no tasks any more."""
    batches: QuerySet[Batch] = QuerySet(Batch, using=using)
    old = batches.filter(state_changed__lte=Later(-load_settings().RETENTION)).exclude(state__in=UNENDED)
    tasks: QuerySet[Model] = QuerySet(Task, using=using)
    if are_apart(Task, using):
        empty = old.exclude(pk__in=tasks.filter(batch__isnull=False).values("batch"))
    else:
        empty = old.filter(IsNull(Subquery(tasks.filter(batch=OuterRef("pk")).values("pk")[:1]), True))
    delete_with_records(batches, list(empty.values_list("pk", flat=True)[:BATCH]))
