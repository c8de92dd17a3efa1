"""Repetition of statements that lost to another transaction."""

import random
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.db import DatabaseError

from stator.db.retry import is_lock_timeout, is_retryable
from stator.db.rows import Rows

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Repeated = TypeVar("Repeated", bound=Rows)

# How often a statement that lost to another transaction is tried.
TRIES = 5


def retrying(
    function: Callable[Concatenate[Repeated, Arguments], Result],
) -> Callable[Concatenate[Repeated, Arguments], Result]:
    """Repeat a function of operations as :func:`retried` does."""

    @wraps(function)
    def repeat(operations: Repeated, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return retried(operations, partial(function, operations))(*args, **kwargs)

    return repeat


def retried(operations: Rows, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that is repeated up to five times when the database asks for it, except inside a transaction.

    For operations of a worker, a lock timeout is not repeated at once.
    """

    def repeat(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for attempt in range(1, TRIES + 1):
            try:
                return function(*args, **kwargs)
            except DatabaseError as error:
                timed_out = operations.locks.wait is not None and is_lock_timeout(error)
                if attempt == TRIES or timed_out or not is_retryable(error) or operations.connection.in_atomic_block:
                    raise
                threading.Event().wait(random.uniform(0, 0.01 * 2**attempt))
        raise AssertionError("the last attempt returns or raises")

    return repeat
