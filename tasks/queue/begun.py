"""Marks of attempts that have begun, so that a task that is lost before its attempt began loses no attempt.

A mark costs a statement. So a worker process writes it only before the call of a task's last attempt, and before each
attempt after a lost lease. If the lease of any other attempt is lost, the attempt counts: nobody knows whether it had
begun, and the task has attempts left.
"""

from uuid import UUID

from django.db.models import Model, QuerySet

from stator.exceptions import NotBegun
from stator.graph.failures import lease_lost
from stator.models import Now
from tasks.actions.registry import RegisteredAction, declared
from tasks.conf import TaskSettings, load_settings
from tasks.queue import runs
from tasks.rows.runs import Run
from tasks.rows.tables import task_rows
from tasks.rows.tasks import TaskRow

# The reason of a run whose process has died, or could not reach the database.
LOST = "its lease ran out"

# The columns that say whether the attempt of a claimed task was to be marked, and is.
COLUMNS = (
    "pk", "state_claim", "begun", "state_attempts", "state_crashes", "max_attempts", "queue__max_attempts", "action",
    "queue__name",
)  # fmt: skip


def usual_attempts(of_queue: int | None, action: RegisteredAction | None, settings: TaskSettings) -> int:
    """Return how often worker processes attempt a task without a number of its own, by its queue and action."""
    usual = of_queue or settings.MAX_ATTEMPTS
    return min(usual, (action and action.max_attempts) or usual)


def is_marked(attempt: int, most: int, crashes: int) -> bool:
    """Return whether an attempt is marked when it begins: it is the last one, or the task has lost a lease."""
    return attempt >= most or crashes > 0


def mark(task: TaskRow, token: UUID) -> None:
    """Write that the attempt begins now; raise ``NotBegun`` if its claim has ended."""
    held = task_rows(task._state.db).filter(pk=task.pk, shard=task.shard, state_claim=token)
    if not held.update(begun=token):
        raise NotBegun(0.0, "")


def never_begun(rows: QuerySet[Model]) -> set[int]:
    """Return which of these claimed tasks a worker process would have marked, and has not."""
    settings, unmarked = load_settings(), {}
    for pk, token, begun, attempt, crashes, own, of_queue, action, queue in rows.values_list(*COLUMNS):
        most = own or usual_attempts(of_queue, declared(action, queue), settings)
        if begun != token and is_marked(attempt, most, crashes):
            unmarked[pk] = token
    # A named worker begins with its claim.
    return unmarked.keys() - runs.holders(unmarked, rows.db).keys()


def taken(rows: QuerySet[Model], why: str) -> set[int]:
    """Record claims of worker processes that other code ends; return the tasks whose attempts have not begun.

    ``why``: why the worker may not hold them any more; if it is empty, their leases have run out.
    """
    if why:
        runs.keep(rows, ended=Now(), outcome=Run.Outcome.WAITED, reason=why)
        return set()
    unbegun = never_begun(rows)
    runs.keep(rows.exclude(pk__in=unbegun), lease_lost(), ended=Now(), outcome=Run.Outcome.LOST, reason=LOST)
    return unbegun
