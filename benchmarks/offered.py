"""The work of jobs that come at a steady rate; the process that runs them sets it."""

from collections.abc import Awaitable, Callable


async def _no_work(due: float) -> None:
    pass


run: Callable[[float], Awaitable[None]] = _no_work
