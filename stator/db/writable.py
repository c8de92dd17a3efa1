"""Whether a database takes writes: a replica, a read-only database or session, and a read-only file take none."""

import sqlite3
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.capabilities import capabilities_of


def is_replica(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a database takes no writes because it follows another one."""
    return bool(_answer(connection, capabilities_of(connection).replica_query)[0])


def refusal_of_writes(connection: BaseDatabaseWrapper) -> str:
    """Return why a database takes no writes and, after a semicolon, what to do; "" if it takes them."""
    capabilities = capabilities_of(connection)
    replica, read_only = _answer(connection, capabilities.read_only_query)
    if replica:
        return f"is a read replica ({capabilities.replica_sign}); point it at the primary"
    if read_only:
        return f"is read-only ({capabilities.read_only_sign}); switch that off and start runstator again"
    if capabilities.is_file and _is_read_only_file(connection):
        return "is read-only; make its file and folder writable and start runstator again"
    return ""


def _answer(connection: BaseDatabaseWrapper, query: str) -> tuple[Any, ...]:
    """Return the row of a query; of zeros if the database has none."""
    if not query:
        return 0, 0
    with connection.cursor() as cursor:
        cursor.execute(query)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def _is_read_only_file(connection: Any) -> bool:
    """Try to write the version that the file has; a file that somebody else is writing to is writable."""
    connection.ensure_connection()
    driver = connection.connection
    if driver.in_transaction:
        return False
    [usual], [version] = (driver.execute(f"PRAGMA {name}").fetchone() for name in ("busy_timeout", "user_version"))
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        # A read-only file would begin the transaction, as one that reads.
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(f"PRAGMA user_version = {version}")
    except sqlite3.OperationalError as error:
        return "readonly" in str(error)
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        driver.execute(f"PRAGMA busy_timeout = {usual}")
    return False
