"""How statements of our own are sent to PostgreSQL, and the transactions they are in."""

from collections.abc import Callable, Iterator
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
    wait: float | None = None,
    shared: bool = False,
) -> Any:
    """A transaction at READ COMMITTED on a connection that is in none; ``usual`` is what its session has by default.

    ``idle``: the server ends it when nothing comes for so many seconds. ``wait``: a statement in it waits so many for a
    lock. ``shared``: not all that is sent is ours.
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
    """A part of a handler's transaction whose statements are ours and wait so long for locks; then it is as usual."""
    with begin():
        set_limits(connection, wait=wait)
        yield
        _put(connection, {"lock_timeout": usual})


def set_limits(connection: Any, *, idle: float | None = None, wait: float | None = None) -> None:
    """Have the server keep limits until the end of the transaction: how long it idles, and waits for each lock."""
    limits = {"idle_in_transaction_session_timeout": idle, "lock_timeout": wait}
    if wanted := {name: f"{max(1, int(seconds * 1000))}ms" for name, seconds in limits.items() if seconds is not None}:
        _put(connection, wanted)


def _put(connection: Any, settings: dict[str, str]) -> None:
    values = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    # Past Django's cursor, for it is no change of the session that a handler made.
    with connection.wrap_database_errors:
        connection.connection.execute(f"SELECT {values}", [each for pair in settings.items() for each in pair])
