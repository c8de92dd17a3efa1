"""Attempt counts of tasks. A row's own count is reset when its task ends, and stays 0 for a shared task."""

from collections.abc import Collection
from typing import Any

from django.db.models import Count, F

from stator.models import History
from tasks.rows.tables import run_rows, task_rows
from tasks.rows.tasks import TERMINAL

# Attempts of parts are counted from these columns.
OF_PARTS = ("whole", "worker_count", "state", "state_version", "state_attempts")


def attempts_of(tasks: Collection[Any], using: str | None) -> dict[int, int]:
    """Return the attempts of each task since it was published or requeued; a shared task has its parts' attempts."""
    wholes = [task.pk for task in tasks if task.worker_count > 1]
    parts = list(task_rows(using).filter(whole__in=wholes).only(*OF_PARTS))
    ended = _of_ended([task for task in (*tasks, *parts) if task.state in TERMINAL and task.worker_count == 1], using)
    counted = {task.pk: ended.get(task.pk, task.state_attempts) for task in tasks}
    for part in parts:
        counted[part.whole_id] += ended.get(part.pk, part.state_attempts)
    return counted


def _of_ended(ended: list[Any], using: str | None) -> dict[int, int]:
    """Return the attempts that tasks had when they ended: from the history, else from their runs."""
    if not ended:
        return {}
    model = type(ended[0])
    runs = run_rows(using)
    counted = dict(
        runs.filter(task__in=[task.pk for task in ended], version=F("task__state_version") - 1)
        .values_list("task")
        .annotate(Count("pk"))
    )
    moves = History.objects.using(using).filter(
        model_label=model._meta.label_lower, object_pk__in=[str(task.pk) for task in ended], to__in=TERMINAL
    )
    versions = {str(task.pk): task.state_version for task in ended}
    for pk, version, attempts in moves.values_list("object_pk", "version", "attempts"):
        if version == versions[pk] and attempts:
            counted[int(pk)] = attempts
    return counted
