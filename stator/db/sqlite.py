"""Operations for SQLite: a transaction takes the only write lock when it begins, instead of failing half-way."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from stator.db import base


class Operations(base.Operations):
    """SQLite: BEGIN IMMEDIATE, and one thread for all statements."""

    @property
    def longest_wait(self) -> float:
        """A part of the lease. Longer than on other databases, because SQLite has no queue for its lock."""
        return self.settings.LEASE / 12

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[Any]:
        """Return a transaction that holds the write lock from its first statement on."""
        return self._immediate(self.locks.shortest(wait))

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """Return the same; it waits for the lock as long as the connection does."""
        return self._immediate(None)

    def _immediate(self, wait: float | None) -> AbstractContextManager[Any]:
        connection, atomic = self.connection, super().transaction()
        if connection.in_atomic_block:
            return atomic
        connection.ensure_connection()
        connection.transaction_mode = "IMMEDIATE"
        return atomic if wait is None else _waiting(connection, wait, atomic)

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context with a lock timeout. Readers wait for the lock as well, except in WAL mode."""
        if self.locks.wait is None or self.connection.in_atomic_block:
            return nullcontext()
        self.connection.ensure_connection()
        return _waiting(self.connection, self.locks.wait, nullcontext())

    def fetch(self, statement: str, params: list[Any]) -> list[Any]:
        """Return the rows of one statement."""
        with self.reading():
            return super().fetch(statement, params)


@contextmanager
def _waiting(connection: Any, seconds: float, work: AbstractContextManager[Any]) -> Iterator[None]:
    """Run a block that gets its locks within so many seconds, or raises that the database is locked."""
    # Without Django's cursor, which would count this as a change of the session by a handler.
    [usual] = connection.connection.execute("PRAGMA busy_timeout").fetchone()
    connection.connection.execute(f"PRAGMA busy_timeout = {min(usual, int(seconds * 1000))}")
    try:
        with work:
            yield
    finally:
        if connection.connection is not None:
            connection.connection.execute(f"PRAGMA busy_timeout = {usual}")
