"""Parts for MySQL and MariaDB: READ COMMITTED, which locks only the rows found and not the gaps between them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import ceil
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet

from stator.db import portable, transactions
from stator.db.generated import forget_columns, in_columns, present_columns
from stator.db.interface import Operations, StoreParts
from stator.db.locks import PROBE
from stator.db.retry import is_of_schema
from stator.db.values import Pk

# How many more rows are found than wanted.
SPARE = 100

# Attributes of the driver's connection: the seconds that its session waits for locks on rows and on tables, and the
# limits that the session had before.
WAITS, USUAL = "stator_waits", "stator_usual_waits"


class MysqlTransactions(transactions.Transactions):
    """MySQL and MariaDB: lock then update in one transaction at READ COMMITTED."""

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a transaction at READ COMMITTED; it waits for locks for whole seconds."""
        connection = self._operations.connection
        if connection.in_atomic_block:
            return super().transaction()
        connection.ensure_connection()
        limit_waits(connection, self._operations.locks.shortest(wait))
        is_usual = getattr(connection, "isolation_level", None) == "read committed"
        return super().transaction() if is_usual else self._read_committed()

    @contextmanager
    def _read_committed(self) -> Iterator[None]:
        with super().transaction():
            # The level is for this transaction alone, which begins with the first statement.
            send(self._operations.connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return a transaction at READ COMMITTED that keeps the session's lock waits."""
        if self._operations.connection.in_atomic_block:
            return super().transaction()
        return self._with_usual_waits()

    @contextmanager
    def _with_usual_waits(self) -> Iterator[None]:
        connection = self._operations.connection
        try:
            with self.transaction():
                limit_waits(connection, None)
                yield
        finally:
            # The rest of it may have hurried. A connection with an error is not used again, and may be closed.
            if connection.connection is not None and not (connection.in_atomic_block or connection.errors_occurred):
                limit_waits(connection, None)

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""
        limit_waits(self._operations.connection, self._operations.locks.wait)

    def reading(self) -> AbstractContextManager[object]:
        """Return a context for a query. A table that is being altered makes readers wait as well."""
        connection, wait = self._operations.connection, self._operations.locks.wait
        if wait is not None and not connection.in_atomic_block:
            connection.ensure_connection()
            limit_waits(connection, wait)
        return nullcontext()

    def lock(self, rows: QuerySet[Model], limit: int, *, in_order: bool = False) -> list[Pk]:
        """Lock rows like the portable method; find rows ``in_order`` first and lock them then.

        A statement that sorts locks every row that it sorts, and other workers would find none. So rows are found
        without a lock, and then locked by their keys if they still match.
        """
        if not in_order:
            return self._locked(rows, limit)
        model, alias = rows.model, self._operations.alias
        try:
            return self._locked_in_order(in_columns(rows, present_columns(model, alias)), limit)
        except OperationalError as error:
            if not is_of_schema(error):
                raise
        # A migration has dropped the generated columns since, and adds them again when it ends.
        forget_columns(model, alias)
        return self._locked_in_order(in_columns(rows, present_columns(model, alias)), limit)

    def _locked_in_order(self, rows: QuerySet[Model], limit: int) -> list[Pk]:
        locked: list[Pk] = []
        tried: list[Pk] = []
        while len(locked) < limit:
            others = rows.exclude(pk__in=tried) if tried else rows
            # More than wanted, because other workers find the same rows at the same time.
            pks = list(others.values_list("pk", flat=True)[: limit + SPARE])
            if not pks:
                break
            tried += pks
            while pks and (wanted := limit - len(locked)) > 0:
                first, pks = pks[:wanted], pks[wanted:]
                mine = set(self._locked(rows.filter(pk__in=first).order_by("pk"), wanted))
                locked += [pk for pk in first if pk in mine]
        return locked


def limit_waits(connection: BaseDatabaseWrapper, seconds: float | None) -> None:
    """Have a session wait at most ``seconds``, rounded up, for locks; None for as long as it did before.

    After a timeout it does not wait for a table at all: only changes of tables hold such locks, and those for long. The
    driver's connection remembers the limits, so that nothing is sent where nothing changes.
    """
    session = connection.connection
    waits = None
    if seconds is not None:
        rows = max(1, ceil(seconds))
        waits = (rows, 0 if seconds <= PROBE else rows)
    if getattr(session, WAITS, None) == waits:
        return
    if not hasattr(session, USUAL):
        send(connection, "SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout")
        [usual] = session.store_result().fetch_row()
        setattr(session, USUAL, tuple(map(int, usual)))
    rows, tables = waits or getattr(session, USUAL)
    send(connection, f"SET SESSION innodb_lock_wait_timeout = {rows}, lock_wait_timeout = {tables}")
    setattr(session, WAITS, waits)


def send(connection: BaseDatabaseWrapper, statement: str) -> None:
    """Send a statement past Django's cursor, which would count it as a change of the session by a handler.

    Errors are Django's, which notes them: it replaces a connection only after an error.
    """
    with connection.wrap_database_errors:
        connection.connection.query(statement)


def parts_of(operations: Operations) -> StoreParts:
    """Return the parts of these operations."""
    return portable.parts_of(operations)._replace(transactions=MysqlTransactions(operations))


@contextmanager
def reading(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have a block in a transaction that cannot write, unless another one is open already."""
    connection.ensure_connection()
    if not connection.in_atomic_block:
        # For the next transaction only.
        send(connection, "SET TRANSACTION READ ONLY")
    with portable.reading(connection):
        yield


@contextmanager
def looking(connection: Any, lock: float, most: float) -> Iterator[None]:
    """Limit the seconds that statements of a block wait for locks, rounded up, and those that they take."""
    connection.ensure_connection()
    before = getattr(connection.connection, WAITS, None)
    limit, unit = ("max_statement_time", 1) if connection.mysql_is_mariadb else ("max_execution_time", 1000)
    limit_waits(connection, lock)
    send(connection, f"SET @stator_usual = @@{limit}, SESSION {limit} = {most * unit:g}")
    try:
        with portable.looking(connection, lock, most):
            yield
    finally:
        if connection.connection is not None:
            send(connection, f"SET SESSION {limit} = @stator_usual")
            limit_waits(connection, None if before is None else float(before[0]))
