"""SQLite: one writer at a time, so a transaction takes the write lock when it begins instead of failing half-way."""

from contextlib import AbstractContextManager
from typing import Any

from stator.db import base


class Operations(base.Operations):
    """SQLite: BEGIN IMMEDIATE, and one thread for all statements."""

    concurrent_writers = False

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction that holds the write lock from its first statement on."""
        connection = self.connection
        if not connection.in_atomic_block:
            connection.ensure_connection()
            connection.transaction_mode = "IMMEDIATE"
        return super().transaction()
