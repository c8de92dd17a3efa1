"""Attempt counts of tasks. A row's own count is reset when its task ends, and stays 0 for a shared task."""

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from django.db.models import Count, F

from tasks.rows.tables import run_rows, task_rows
from tasks.rows.tasks import TERMINAL

if TYPE_CHECKING:
    from tasks.models import Task

# Attempts of parts are counted from these columns.
OF_PARTS = ("whole", "worker_count", "state", "state_version", "state_attempts")


def attempts_of(tasks: "Collection[Task]", using: str | None) -> dict[int, int]:
    """Return the attempts of each task since it was published or requeued; a shared task has its parts' attempts."""
    wholes = [task.pk for task in tasks if task.worker_count > 1]
    # Most answers have neither shared nor ended tasks, and a query that finds nothing takes its time, too.
    parts = list(task_rows(using).filter(whole__in=wholes).only(*OF_PARTS)) if wholes else []
    ended = [task.pk for task in (*tasks, *parts) if task.state in TERMINAL and task.worker_count == 1]
    of_ended = _of_ended(ended, using) if ended else {}
    attempts = {task.pk: of_ended.get(task.pk, task.state_attempts) for task in (*tasks, *parts)}
    for part in parts:
        attempts[cast("int", part.whole_id)] += attempts[part.pk]
    return attempts


def _of_ended(pks: list[int], using: str | None) -> dict[int, int]:
    # A task's version is one more since its end.
    runs = run_rows(using).filter(task__in=pks, version=F("task__state_version") - 1)
    return dict(runs.values_list("task").annotate(Count("pk")))
