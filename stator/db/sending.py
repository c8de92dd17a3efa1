"""The sending of our own statements to PostgreSQL, and their transactions."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import ClientCursor, IsolationLevel
from psycopg.types.datetime import TimestamptzLoader


def send(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    """Return the rows of the last statement that returns any; one round trip, with the parameters in the text."""
    connection.ensure_connection()
    # Otherwise a write after an error that a handler caught would seem to succeed and be rolled back.
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors, ClientCursor(connection.connection) as cursor:
        if settings.USE_TZ:
            # Django registers a loader written in Python; psycopg's own takes a tenth of the time.
            cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(statement, params)
        rows: list[Any] = []
        more: bool | None = True
        while more:
            rows = cursor.fetchall() if cursor.description else rows
            more = cursor.nextset()
        return rows


@contextmanager
def read_committed(
    alias: str,
    begin: Callable[[], AbstractContextManager[Any]],
    usual: str,
    *,
    idle: float | None = None,
    wait: float | None = None,
    shared: bool = False,
) -> Any:
    """Open a transaction at READ COMMITTED on a connection outside any; ``usual`` is the session's default level.

    ``idle``: the server ends the session after so many seconds without a statement. ``wait``: seconds that a statement
    waits for a lock. ``shared``: statements of others are sent in it, too.
    """
    connection: Any = connections[alias]
    before = connection.connection.isolation_level
    changes = before not in (None, IsolationLevel.READ_COMMITTED) or (before is None and usual != "read committed")
    if changes:
        connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.stator_transaction, connection.stator_shared = True, shared
    try:
        with begin():
            set_limits(connection, idle=idle, wait=wait)
            yield
    finally:
        connection.stator_transaction = False
        if changes and connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before


@contextmanager
def hurried(
    connection: Any, begin: Callable[[], AbstractContextManager[Any]], wait: float, usual: str
) -> Iterator[None]:
    """Limit lock waits in a part of a handler's transaction that has only our statements; then restore ``usual``."""
    with begin():
        set_limits(connection, wait=wait)
        yield
        _put(connection, {"lock_timeout": usual})


def set_limits(connection: Any, *, idle: float | None = None, wait: float | None = None) -> None:
    """Set limits until the end of the transaction: for idle time, and for waiting for a lock."""
    limits = {"idle_in_transaction_session_timeout": idle, "lock_timeout": wait}
    if wanted := {name: f"{max(1, int(seconds * 1000))}ms" for name, seconds in limits.items() if seconds is not None}:
        _put(connection, wanted)


def _put(connection: Any, settings: dict[str, str]) -> None:
    values = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    # Without Django's cursor, which would count this as a change of the session by a handler.
    with connection.wrap_database_errors:
        connection.connection.execute(f"SELECT {values}", [each for pair in settings.items() for each in pair])
