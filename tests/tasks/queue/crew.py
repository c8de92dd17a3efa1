"""Live worker processes, and the reasons why they do not take a task."""

from tests.tasks.making import fresh
from tests.tasks.queue import processes


def live_process(number=1, queues=None, **actions):
    """A live worker process that has these actions, by queue, and serves all queues or those that are named."""
    published = {"tasks": {"actions": actions or {"": ["echo"]}, "queues": queues}}
    return processes.live_process("", id=f"{number:012x}", database="default", published=published)


def reasons(task):
    return {reason.code: reason for reason in fresh(task).explain()}
