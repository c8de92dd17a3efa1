"""How statements of our own are sent to PostgreSQL, and the transactions they are in."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import ClientCursor, IsolationLevel
from psycopg.types.datetime import TimestamptzLoader


def send(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    """The rows of the last of some statements, sent in one round trip with their parameters in the text."""
    connection.ensure_connection()
    with connection.wrap_database_errors, ClientCursor(connection.connection) as cursor:
        if settings.USE_TZ:
            # Django registers a loader written in Python; psycopg's own takes a tenth of the time.
            cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(statement, params)
        while cursor.nextset():
            pass
        return cursor.fetchall()


@contextmanager
def read_committed(alias: str, begin: Callable[[], AbstractContextManager[Any]], idle: float | None = None) -> Any:
    """A transaction at READ COMMITTED; with ``idle`` the server ends it when nothing comes for so many seconds."""
    connection: Any = connections[alias]
    if connection.in_atomic_block:
        with begin():
            yield
        return
    connection.ensure_connection()
    before = connection.connection.isolation_level
    connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.stator_transaction = True
    try:
        with begin():
            if idle is not None:
                _end_when_idle(connection, idle)
            yield
    finally:
        connection.stator_transaction = False
        if connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before


def _end_when_idle(connection: Any, seconds: float) -> None:
    # Past Django's cursor, for it is no change of the session that a handler made.
    with connection.wrap_database_errors:
        connection.connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [f"{seconds * 1000:.0f}ms"]
        )
