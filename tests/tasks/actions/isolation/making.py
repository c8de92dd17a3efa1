"""Tasks of an isolated action."""

from typing import Any

from stator.testing import drain
from tasks.models import Queue, Task


def make(do: str = "", action: str = "alone", **columns: Any) -> Task:
    queue, _ = Queue.objects.get_or_create(name="default")
    return Task.objects.create(queue=queue, action=action, priority=1, **{"data": {"do": do}, **columns})


def ran(do: str = "", **columns: Any) -> Task:
    task = make(do, **columns)
    drain(Task)
    task.refresh_from_db()
    return task
