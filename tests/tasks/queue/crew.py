"""Live worker processes, and the reasons why they do not take a task."""

from stator.models import Worker
from tests.tasks.making import fresh


def live_process(number=1, queues=None, **actions):
    """A live worker process that has these actions, by queue, and serves all queues or those that are named."""
    published = {"tasks": {"actions": actions or {"": ["echo"]}, "queues": queues}}
    return Worker.objects.create(
        id=f"{number:012x}", host="h", pid=number, version="1", models=["tasks.task"], database="default",
        published=published,
    )  # fmt: skip


def reasons(task):
    return {reason.code: reason for reason in fresh(task).explain()}
