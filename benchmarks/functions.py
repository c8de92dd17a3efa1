"""Functions of Django's Tasks framework that do next to nothing, for the benchmark of the backend."""

from benchmarks import offered
from tasks.backend.framework import task


@task()
async def add(left: int, right: int) -> int:
    """Return a result, on the event loop."""
    return left + right


@task()
def add_in_thread(left: int, right: int) -> int:
    """Return a result, in a thread."""
    return left + right


@task()
async def nothing() -> None:
    """Return no result, on the event loop."""


@task()
async def timed(due: float) -> None:
    """Do the work of a job at a steady rate."""
    await offered.run(due)
