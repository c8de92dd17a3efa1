"""Functions of Django's Tasks framework."""

import asyncio
from typing import Any

from django.contrib.auth.models import Group

import tasks.backend
from tasks.backend.framework import task_backends  # noqa: F401 - it must be possible before models are loaded

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

calls: list[Any] = []


@task()
def add(left: int, right: int = 1) -> int:
    """Sync."""
    calls.append((left, right))
    return left + right


@task
async def greet(name: str) -> str:
    """Async."""
    await asyncio.sleep(0)
    return f"hello {name}"


@task(takes_context=True)
def started(context: Any, times: int = 0) -> None:
    """Note when it started, as it is told; fail so many times."""
    calls.append(context.task_result.started_at)
    if context.attempt <= times:
        raise LookupError(f"time {context.attempt}")


@task(takes_context=True)
def describe(context: Any, note: str, times: int = 0) -> dict[str, Any]:
    """Return the values of the context, after so many failures."""
    result = context.task_result
    if context.attempt <= times:
        raise LookupError(f"time {context.attempt}")
    return {
        "id": result.id,
        "attempt": context.attempt,
        "status": str(result.status),
        "note": note,
        "args": result.args,
    }


@task(takes_context=True)
async def adescribe(context: Any) -> int:
    """The same, async."""
    return int(context.attempt)


@task(priority=10, queue_name="mail")
def send(to: str) -> None:
    """With a priority and a queue."""
    calls.append(to)


@task()
def note(name: str) -> None:
    """Note that it ran."""
    calls.append(name)


@task()
def go_wrong(message: str) -> None:
    """Raise an error."""
    calls.append("wrong")
    raise ValueError(message)


@task(backend="retrying", takes_context=True)
def second_time(context: Any) -> str:
    """Succeed at the second attempt."""
    if context.attempt < 2:
        raise LookupError("not the first time")
    return "done"


def careful(exception: BaseException, task_result: Any) -> int | None:
    """Note what it is told; wait 30 s after each attempt, and end at a PermissionError."""
    calls.append((exception, task_result))
    return None if isinstance(exception, PermissionError) else 30 * task_result.attempts


@tasks.backend.task(max_attempts=3, backoff=careful)
def fetch(url: str, denied: bool = False) -> None:
    """Fail."""
    raise PermissionError(url) if denied else ConnectionError(url)


@tasks.backend.task(max_attempts=2, backoff=lambda exception, task_result: "soon")  # type: ignore[arg-type, return-value]
def badly_backed_off() -> None:
    """Fail, and have a back-off that fails."""
    raise LookupError("first")


@task()
def make_group(name: str) -> None:
    """Write a row."""
    Group.objects.create(name=name)


def no_task() -> None:
    """Not decorated."""
