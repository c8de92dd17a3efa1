"""What the benchmark of the backend enqueues: functions of Django's Tasks framework that do next to nothing."""

from tasks.framework import task


@task()
async def add(left: int, right: int) -> int:
    """Async, with a result."""
    return left + right


@task()
def add_in_thread(left: int, right: int) -> int:
    """Sync, with a result."""
    return left + right


@task()
async def nothing() -> None:
    """Async, without a result."""
