"""Queues and tasks for tests, and time that passes for them."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from stator.testing import advance
from tasks.backend.results import number_of
from tasks.models import Queue, Task
from tasks.queue.held_claims import of_row
from tests.stator.making import change

# Each with a part of what is said about it.
IMPOSSIBLE_NAMES = [
    ("a" * 101, "has 101 characters; the most is 100"),
    ("nul\0", "has a NUL character"),
    ("half\ud800", "has half of a surrogate pair"),
    ("two\nlines", "has a character that cannot be printed"),
    ("", "is empty"),
    ("a/b", "would have no address over HTTP; use a name without /"),
    (".", "would have no address over HTTP"),
    ("..", "would have no address over HTTP"),
]

STATUSES = ("invisible", "pending", "running", "completed", "canceled", "errored")


def make_queue(name: str = "encode", **settings: Any) -> Queue:
    """A queue that takes any action; exclusive if it has a key."""
    kind = Queue.Kind.EXCLUSIVE if settings.get("exclusive_key") else Queue.Kind.SIMPLE
    return Queue.objects.create(name=name, kind=kind, **{"actions_elsewhere": True, **settings})


def make_task(queue: Queue, status: str = "pending", **options: Any) -> Task:
    """A task of that status, brought there as programs bring it."""
    if status == "invisible":
        options["invisible_for"] = 60
    task = queue.publish("resize", {"image": 7}, **options).task
    if status in ("running", "completed", "errored"):
        (claim,) = queue.claim(worker="maker")
        if status == "completed":
            claim.resolve({"ok": True})
        if status == "errored":
            change(task, state_attempts=1000)
            claim.fail("no such image")
    if status == "canceled":
        task.cancel()
    task.refresh_from_db()
    assert task.status == status
    return task


def publish(queue: Queue, actions: Iterable[str], **options: Any) -> list[Task]:
    """A task for each of these actions."""
    return [queue.publish(action, **options).task for action in actions]


def statuses(tasks: Iterable[Task]) -> list[str]:
    """The statuses that tasks have now."""
    return [fresh(task).status for task in tasks]


def fresh(task: Task) -> Task:
    """The task as the database has it."""
    return Task.objects.get(pk=task.pk)


def task_of(result: Any) -> Task:
    """The task of a result of Django's framework."""
    return Task.objects.get(pk=number_of(result))


def pass_time(seconds: float) -> None:
    """Let time pass for tasks."""
    advance(seconds, Task)


def claim_one(queue: Queue, worker: str = "bot-1", **options: Any) -> Any:
    """The one task that the worker is given."""
    (claim,) = queue.claim(worker=worker, **options)
    return claim


def found_claim(pk: int, token: Any, using: str = "default") -> Any:
    """The claim with this token as a program finds it again; raises ``LeaseLost`` if it has ended."""
    return of_row(QuerySet(Task, using=using).get(pk=pk), UUID(str(token)), "bot-1")


def claimed(queue: Queue, worker: str = "bot-1", **options: Any) -> list[str]:
    """The actions of all tasks that the worker is given."""
    return [claim.task.action for claim in queue.claim(worker=worker, limit=100, **options)]


def race(count: int, work: Callable[[str], Any]) -> list[Any]:
    """Call ``work`` for so many named workers at once, each in a thread with its own connection; return the results."""

    def run(name: str) -> Any:
        try:
            return work(name)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, [f"bot-{number}" for number in range(count)]))


def died_after_a_step(queue, **options):
    """A dead letter whose attempt has charged somebody."""
    queue.publish("resize", key="once", max_attempts=1, **options)
    claim = claim_one(queue)
    claim.step("charge", lambda: "receipt 1")
    claim.fail("no paper")
    return fresh(claim.task)
