"""Shared tasks end with their parts; if the process dies before, the graph's SQL transitions end them."""

from django.db.models import Exists, OuterRef, QuerySet

from stator.models import move_rows
from stator.statements import is_one_of
from tasks.chores.passes import CHORES, FOLLOWS, TaskMoves
from tasks.extensions.shared.parts import SharedParts
from tasks.models import Task
from tasks.queue.task_parts import KIND
from tasks.rows.tasks import TERMINAL


def connect() -> None:
    """Settle shared tasks after moves, and in passes."""
    for state in TERMINAL:
        FOLLOWS[state].append(_settle_of)
    FOLLOWS["canceled"].append(_end_of)
    CHORES.append(end_parts)
    KIND.parts = SharedParts()


def _settle_of(using: str, moved: TaskMoves) -> None:
    # Whether a task is a part never changes, so a claimed instance can tell.
    if parts := moved.pks("whole_id", "pending"):
        settle(using, parts)


def _end_of(using: str, moved: TaskMoves) -> None:
    if wholes := moved.pks(source="shared"):
        end_parts(using, wholes)


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
    which = {"whole__isnull": False} if wholes is None else {"whole__in": wholes}
    left: QuerySet[Task] = QuerySet(Task, using=using).filter(**which, whole__state="canceled", state="pending")
    move_rows(left, "canceled", reason="the shared task was canceled")
