"""Repetition of statements that lost to another transaction, and of writes that the database refused for a row."""

import logging
import random
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from django.db import DatabaseError
from django.db.models import Model, QuerySet

from stator.db.retry import is_lock_timeout, is_refusal, is_retryable
from stator.db.rows import Rows
from stator.db.values import Pk
from stator.exceptions import Errors

if TYPE_CHECKING:
    from stator.db.interface import Operations

logger = logging.getLogger("stator.worker")

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


def unless_refused(
    operations: "Operations",
    deed: str,
    parts: list[QuerySet[Model]],
    limit: int,
    write: Callable[[list[QuerySet[Model]], int], Result],
    errors: Errors = DatabaseError,
) -> list[Result]:
    """Return the results of ``write`` for up to ``limit`` rows: all at once or, if that is refused, piece by piece.

    ``write`` takes querysets and a limit, and is a transaction by itself. What cannot be done in pieces is left for
    the next time.
    """
    conditions = operations.conditions
    others = conditions.rows(deed)
    parts = [rows.filter(others) for rows in parts]
    try:
        return [write(parts, limit)]
    except errors as error:
        if not is_refusal(error):
            raise
        if conditions.dividing is None:
            logger.warning("stator.chore_refused", extra={"model": operations.label, "deed": deed}, exc_info=error)
            return []
    with operations.reading():
        pks = [pk for rows in parts for pk in rows.values_list("pk", flat=True)[:limit]]

    def write_piece(piece: list[Pk]) -> Result:
        return write([rows.filter(pk__in=piece) for rows in parts], len(piece))

    return conditions.dividing.pieces(deed, pks[:limit], write_piece, errors)
