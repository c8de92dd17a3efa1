"""How statements of our own are sent to PostgreSQL, and the transactions they are in."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import ClientCursor, IsolationLevel
from psycopg.types.datetime import TimestamptzLoader


def send(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    """The rows of some statements, of the last that gives any; one round trip, with the parameters in the text."""
    connection.ensure_connection()
    # Else what comes behind an error that a handler caught would seem to be written, and be rolled back.
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
    shared: bool = False,
) -> Any:
    """A transaction at READ COMMITTED on a connection that is in none; ``usual`` is what its session has by default.

    ``idle``: the server ends it when nothing comes for so many seconds. ``shared``: not all that is sent is ours.
    """
    connection: Any = connections[alias]
    before = connection.connection.isolation_level
    changes = before not in (None, IsolationLevel.READ_COMMITTED) or (before is None and usual != "read committed")
    if changes:
        connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.stator_transaction, connection.stator_shared = True, shared
    try:
        with begin():
            if idle is not None:
                _end_when_idle(connection, idle)
            yield
    finally:
        connection.stator_transaction = False
        if changes and connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before


def _end_when_idle(connection: Any, seconds: float) -> None:
    # Past Django's cursor, for it is no change of the session that a handler made.
    with connection.wrap_database_errors:
        connection.connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [f"{seconds * 1000:.0f}ms"]
        )
