"""Tasks with actions, and attempts of them."""

from typing import Any

from stator.models import Report
from stator.testing import drain
from tasks.models import Queue, Task


def make(action: str, data: Any = None, queue: str = "default", **columns: Any) -> Task:
    found, _ = Queue.objects.get_or_create(name=queue, defaults={"actions_elsewhere": False})
    return Task.objects.create(queue=found, action=action, data=data, priority=1, **columns)


def ran(action: str, data: Any = None, **columns: Any) -> Task:
    task = make(action, data, **columns)
    drain(Task)
    task.refresh_from_db()
    return task


def report(task: Task) -> Report:
    return Report.objects.get(model_label="tasks.task", object_pk=str(task.pk))
