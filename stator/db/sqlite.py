"""Parts for SQLite: a transaction takes the only write lock when it begins, instead of failing half-way."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from traceback import clear_frames

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db import portable, transactions
from stator.db.interface import Operations, StoreParts


class SqliteTransactions(transactions.Transactions):
    """SQLite: BEGIN IMMEDIATE, and one thread for all statements."""

    @property
    def longest_wait(self) -> float:
        """A part of the lease; it is longer than on other databases, because SQLite has no queue for its lock."""
        return self._operations.settings.LEASE / 12

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a transaction that holds the write lock from its first statement on."""
        return self._immediate(self._operations.locks.shortest(wait))

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return a transaction that holds the write lock; it waits for the lock as long as the connection does."""
        return self._immediate(None)

    def _immediate(self, wait: float | None) -> AbstractContextManager[object]:
        connection = self._operations.connection
        atomic = super().transaction()
        if connection.in_atomic_block:
            return atomic
        connection.ensure_connection()
        setattr(connection, "transaction_mode", "IMMEDIATE")  # noqa: B010 - of SQLite's connections alone
        return atomic if wait is None else _waiting(connection, wait, atomic)

    def reading(self) -> AbstractContextManager[object]:
        """Return a context with a lock timeout. Readers wait for the lock as well, except in WAL mode."""
        connection, wait = self._operations.connection, self._operations.locks.wait
        if wait is None or connection.in_atomic_block:
            return nullcontext()
        connection.ensure_connection()
        return _waiting(connection, wait, nullcontext())


@contextmanager
def _waiting(connection: BaseDatabaseWrapper, seconds: float, work: AbstractContextManager[object]) -> Iterator[None]:
    """Run a block that gets its locks within ``seconds``, or raises that the database is locked."""
    # Django's cursor is not used, because it would count this as a change of the session by a handler.
    [usual] = connection.connection.execute("PRAGMA busy_timeout").fetchone()
    connection.connection.execute(f"PRAGMA busy_timeout = {min(usual, int(seconds * 1000))}")
    try:
        with work:
            yield
    except DatabaseError as error:
        # Django's error refers to its frames, and they to the error and to a cursor that Django leaves open. Until the
        # garbage collector frees that cursor, SQLite keeps the files open, even if the connection is closed.
        clear_frames(error.__traceback__)
        raise
    finally:
        if connection.connection is not None:
            connection.connection.execute(f"PRAGMA busy_timeout = {usual}")


def parts_of(operations: Operations) -> StoreParts:
    """Return the parts of these operations."""
    return portable.parts_of(operations)._replace(transactions=SqliteTransactions(operations))


@contextmanager
def reading(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have a block in which the connection cannot write, unless a transaction is open already."""
    if connection.in_atomic_block:
        yield
        return
    connection.ensure_connection()
    # Without a transaction: one that begins as IMMEDIATE would be refused, and would keep other programs from writing.
    connection.connection.execute("PRAGMA query_only = 1")
    try:
        yield
    finally:
        if connection.connection is not None:
            connection.connection.execute("PRAGMA query_only = 0")


# Instructions of SQLite between two looks at the clock: about a millisecond.
INSTRUCTIONS = 10_000


@contextmanager
def looking(connection: BaseDatabaseWrapper, lock: float, most: float) -> Iterator[None]:
    """Limit the seconds that a block waits for the file, and those that it takes."""
    connection.ensure_connection()
    until = monotonic() + most
    connection.connection.set_progress_handler(lambda: monotonic() > until, INSTRUCTIONS)
    try:
        # A statement that fails leaves an open transaction as it was, so this needs no savepoint.
        with _waiting(connection, lock, nullcontext()):
            yield
    finally:
        if connection.connection is not None:
            connection.connection.set_progress_handler(None, 0)
