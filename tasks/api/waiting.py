"""Waiting requests: each holds a thread, or under ASGI none, but no transaction and no connection."""

from collections.abc import Awaitable, Callable

from django.db import connections

from tasks.api.errors import Busy
from tasks.exceptions import TooManyWaiting
from tasks.models import Queue
from tasks.queue import waiting


def until_some(
    attempt: Callable[[], waiting.Some], queue: Queue, seconds: float, most: int
) -> tuple[waiting.Some, float]:
    """Call ``attempt`` until it returns something; return that, and the seconds of waiting before that call began.

    The list is empty if ``attempt`` returns nothing for ``seconds``. Raises ``Busy`` if ``most`` requests wait already.
    """
    try:
        return waiting.until_some(attempt, queue, seconds, most=most, before_wait=give_connections_back)
    except TooManyWaiting as error:
        raise Busy(str(error), 1) from None


async def auntil_some(
    attempt: Callable[[], Awaitable[waiting.Some]], queue: Queue, seconds: float, most: int
) -> tuple[waiting.Some, float]:
    """Run :func:`until_some` without holding a thread."""
    try:
        return await waiting.auntil_some(attempt, queue, seconds, most=most)
    except TooManyWaiting as error:
        raise Busy(str(error), 1) from None


def give_connections_back() -> None:
    """Close the connections of this thread, or return them to their pools."""
    for connection in connections.all(initialized_only=True):
        # Only a test that runs in a transaction has one open here.
        if not connection.in_atomic_block:
            connection.close()
