"""The consequences of moves of tasks: shared tasks end with their parts, and dead letters are told of.

They happen right after the commit of each move, whoever made it. If the process dies before, the graph's SQL
transitions and the workers' scheduling pass make up for it.
"""

from collections.abc import Mapping

from django.db.models import Exists, Model, OuterRef, QuerySet

from stator import signals
from stator.models import move_rows
from stator.scopes import entered
from stator.signals import Move
from stator.statements import is_one_of
from tasks.actions import throttles
from tasks.chores.retention import prune
from tasks.dead_letters import send_notices
from tasks.extensions.stats.samples import sample
from tasks.models import Task
from tasks.queue.batches import tell_first_failures
from tasks.rows.databases import home

# Keys per statement.
BATCH = 500

# Stands for a key that an instance was read without.
UNREAD = object()


def connect() -> None:
    """Connect the receivers for moves of tasks, and for the scheduling pass of workers."""
    signals.transitioned.connect(_on_moves, sender=Task, dispatch_uid="tasks.settling")
    signals.on_schedule.connect(_on_schedule, dispatch_uid="tasks.settling")


def settle(using: str, parts: list[object]) -> None:
    """End the shared tasks of these parts, if one of their parts was canceled or all have ended.

    A part without success does not end the other parts, because they may still succeed.
    """
    rows: QuerySet[Task] = QuerySet(Task, using=using)
    of_parts = rows.filter(is_one_of(rows, parts), whole__isnull=False, whole__state="shared")
    wholes = rows.filter(pk__in=list(of_parts.values_list("whole", flat=True).distinct()), state="shared")
    if not wholes:
        return
    each = rows.filter(whole=OuterRef("pk"))
    ended = wholes.filter(~Exists(each.filter(state="pending")))
    move_rows(wholes.filter(Exists(each.filter(state="canceled"))), "canceled", reason="by a part")
    move_rows(ended.filter(Exists(each.filter(state="errored"))), "errored", reason="too few parts succeeded")
    move_rows(ended.filter(~Exists(each.exclude(state="completed"))), "completed", reason="all parts did")


def end_parts(using: str, wholes: list[object] | None = None) -> None:
    """Cancel the open parts of shared tasks that were canceled; workers lose their claims on them.

    ``wholes``: only the parts of these tasks. Index ``tasks_task_open_part``.
    """
    rows: QuerySet[Model] = QuerySet(Task, using=using)
    which = {"whole__isnull": False} if wholes is None else {"whole__in": wholes}
    left = rows.filter(**which, whole__state="canceled", state="pending")
    move_rows(left, "canceled", reason="the shared task was canceled")


def _on_moves(
    sender: object, moves: list[Move], using: str, instances: Mapping[object, object] | None = None, **kwargs: object
) -> None:
    # Whether a task is a part never changes, so a claimed instance can tell.
    alone = _without("whole_id", instances)
    ended = [move.pk for move in moves if move.source == "pending" and move.pk not in alone]
    wholes = [move.pk for move in moves if move.source == "shared" and move.to == "canceled"]
    errored = [move.pk for move in moves if move.to == "errored"]
    for start in range(0, len(moves), BATCH):
        part = slice(start, start + BATCH)
        if ended[part]:
            settle(using, ended[part])
        if wholes[part]:
            end_parts(using, wholes[part])
        if errored[part]:
            send_notices(using, errored[part])
            # If it joined a batch while a worker held it, the scheduling pass tells of its failure.
            if in_batches := set(errored[part]) - _without("batch_id", instances):
                tell_first_failures(using, sorted(in_batches))


def _without(key: str, instances: Mapping[object, object] | None) -> set[object]:
    """Return the tasks whose instances were read without a foreign key."""
    return {pk for pk, task in (instances or {}).items() if vars(task).get(key, UNREAD) is None}


def _on_schedule(sender: signals.ServingWorker, **kwargs: object) -> None:
    # Even a worker that serves no tasks does these chores, where queues are written; a schema may be without tasks.
    for using in sender.databases_of(Task) or [home()] * (not entered()):
        Task.objects.using(using).end_exhausted()
        end_parts(using)
        send_notices(using)
        tell_first_failures(using)
        prune(using)
        throttles.prune(using)
        sample(using)  # tasks.extensions.stats
