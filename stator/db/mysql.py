"""Parts for MySQL and MariaDB: READ COMMITTED, which locks only the rows found and not the gaps between them."""

from contextlib import AbstractContextManager

from stator.db import portable, transactions
from stator.db.interface import Operations, Parts


class Transactions(transactions.Transactions):
    """MySQL and MariaDB: lock then update in one transaction at READ COMMITTED."""

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a transaction at READ COMMITTED."""
        connection = self._operations.connection
        if not connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return super().transaction()


def parts_of(operations: Operations) -> Parts:
    """Return the parts of these operations."""
    return portable.parts_of(operations)._replace(transactions=Transactions(operations))
