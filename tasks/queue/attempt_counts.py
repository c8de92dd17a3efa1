"""Attempt counts of tasks. A row's own count is reset when its task ends, and stays 0 if it has parts."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from django.db.models import Count, F

from tasks.queue.task_parts import KIND
from tasks.rows.tables import run_rows
from tasks.rows.tasks import TERMINAL

if TYPE_CHECKING:
    from tasks.models import Task


def attempts_of(tasks: "Collection[Task]", using: str | None) -> dict[int, int]:
    """Return the attempts of each task since it was published or requeued; parts count for their task."""
    parts = KIND.parts.rows_of(tasks, using)
    every, divided = [*tasks, *(part for _, part in parts)], {pk for pk, _ in parts}
    # Most answers have no ended tasks, and a query that finds nothing takes its time, too.
    ended = [task.pk for task in every if task.state in TERMINAL and task.pk not in divided]
    of_ended = _of_ended(ended, using) if ended else {}
    attempts = {task.pk: of_ended.get(task.pk, task.state_attempts) for task in every}
    for pk, part in parts:
        attempts[pk] += attempts[part.pk]
    return attempts


def _of_ended(pks: list[int], using: str | None) -> dict[int, int]:
    # A task's version is one more since its end.
    runs = run_rows(using).filter(task__in=pks, version=F("task__state_version") - 1)
    return dict(runs.values_list("task").annotate(Count("pk")))
