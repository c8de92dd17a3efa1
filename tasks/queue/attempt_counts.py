"""Attempt counts of tasks. A row's own count is reset when its task ends, and stays 0 for a shared task."""

from collections.abc import Collection
from typing import Any

from django.db.models import Count, F

from tasks.rows.tables import run_rows, task_rows
from tasks.rows.tasks import TERMINAL

# Attempts of parts are counted from these columns.
OF_PARTS = ("whole", "worker_count", "state", "state_version", "state_attempts")


def attempts_of(tasks: Collection[Any], using: str | None) -> dict[int, int]:
    """Return the attempts of each task since it was published or requeued; a shared task has its parts' attempts."""
    wholes = [task.pk for task in tasks if task.worker_count > 1]
    parts = list(task_rows(using).filter(whole__in=wholes).only(*OF_PARTS))
    # The runs of the version before the end.
    ended = [task.pk for task in (*tasks, *parts) if task.state in TERMINAL and task.worker_count == 1]
    runs = run_rows(using).filter(task__in=ended, version=F("task__state_version") - 1)
    of_ended = dict(runs.values_list("task").annotate(Count("pk")))
    attempts = {task.pk: of_ended.get(task.pk, task.state_attempts) for task in (*tasks, *parts)}
    for part in parts:
        attempts[part.whole_id] += attempts[part.pk]
    return attempts
