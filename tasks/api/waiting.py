"""Waiting requests: each holds a thread, but no transaction and no connection."""

from collections.abc import Callable
from typing import Any

from django.db import connections

from tasks.api.errors import Busy
from tasks.exceptions import TooManyWaiting
from tasks.queue import waiting


def until_some(attempt: Callable[[], list[Any]], queue: Any, seconds: float, most: int) -> tuple[list[Any], float]:
    """Call ``attempt`` until it returns something; return that, and the seconds of waiting before that call began.

    The list is empty if ``attempt`` returns nothing for ``seconds``. Raises ``Busy`` if ``most`` requests wait already.
    """
    try:
        return waiting.until_some(attempt, queue, seconds, most=most, before_wait=_give_connections_back)
    except TooManyWaiting as error:
        raise Busy(str(error), 1) from None


def _give_connections_back() -> None:
    for connection in connections.all(initialized_only=True):
        # Only a test that runs in a transaction has one open here.
        if not connection.in_atomic_block:
            connection.close()
