"""Operations for MySQL and MariaDB: READ COMMITTED, which locks only the rows found and not the gaps between them."""

from contextlib import AbstractContextManager
from typing import Any

from stator.db import base


class Operations(base.Operations):
    """MySQL and MariaDB: the portable statements, lock then update in one transaction."""

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[Any]:
        """Return a transaction at READ COMMITTED."""
        connection = self.connection
        if not connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return super().transaction()
