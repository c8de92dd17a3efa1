"""Status, attempts and holder of tasks for lists and pages, read for all tasks of a page together."""

from collections.abc import Iterable
from typing import Protocol

from stator.admin.row_summary import lease
from tasks.models import Task
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.runs import holders

# The statuses that are read of shared tasks.
SHARED = ("running", "pending")


class SummarizedTask(Protocol):
    """A task after :func:`summarize`."""

    shown_status: str
    shown_attempts: int
    shown_holder: str


def summarize(tasks: Iterable[Task], using: str) -> None:
    """Set ``shown_status``, ``shown_attempts`` and ``shown_holder`` on each task: at most six statements."""
    rows = [*tasks]
    shared = _of_parts([task.pk for task in rows if task.state == "shared"], using)
    attempts = attempts_of(rows, using)
    # For other claims, the token itself names the worker process.
    workers = holders({task.pk: task.state_claim for task in rows if task.state_claim}, using)
    for task in rows:
        shown = vars(task)
        shown["shown_status"] = shared.get(task.pk, "invisible") if task.state == "shared" else task.status
        shown["shown_attempts"] = attempts[task.pk]
        shown["shown_holder"] = lease(task, workers.get(task.pk, ""))


def _of_parts(pks: list[int], using: str) -> dict[int, str]:
    """Return the statuses of shared tasks by primary key; merely invisible tasks are left out."""
    shared = Task.objects.using(using).filter(pk__in=pks)
    return {pk: status for status in SHARED for pk in shared.with_status(status).values_list("pk", flat=True)}
