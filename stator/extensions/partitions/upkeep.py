"""Upkeep of partitions: make future ones, and drop those whose rows are past their retention."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet

from stator.extensions.partitions.tables import TICK, Partition, PartitionedTable, read, spelled_out
from stator.scopes import TABLES
from stator.statements import fetch_all

logger = logging.getLogger("stator.partitions")

# Seconds that a change of partitions waits for each of its locks: on the table, the partition and the default one.
# Workers' statements wait behind it, for up to 0.5 s.
WAIT = 0.15

# PostgreSQL's code of a statement that waited too long for a lock.
NOT_AVAILABLE = "55P03"

CREATE = "CREATE TABLE IF NOT EXISTS {part} PARTITION OF {table} FOR VALUES FROM ({lower}) TO ({upper})"
DEFAULT = "CREATE TABLE IF NOT EXISTS {part} PARTITION OF {table} DEFAULT"
ENDS = "SELECT extract(epoch FROM min({column}))::float8, extract(epoch FROM max({column}))::float8 FROM {part}"

MayDrop = Callable[[Partition], bool]


def maintain(model: type[Model], alias: str, age: float, may_drop: MayDrop = lambda partition: True) -> int:
    """Make the missing partitions of a model's table, and drop partitions that ended more than ``age`` seconds ago.

    Return how many were made, dropped or emptied. ``may_drop`` may keep a partition. Each change is a short
    transaction; if its lock is not to be had, the next call makes it. A table without partitions stays as it is.
    """
    table = read(model, alias)
    return PartitionUpkeep(model, alias, table, age, may_drop).run() if table else 0


def connect() -> None:
    """Let workers keep up the tables that are divided by time."""
    TABLES.keep_up = maintain


@dataclass(frozen=True, slots=True)
class PartitionUpkeep:
    """The upkeep of one table; the attributes are as in :func:`maintain`."""

    model: type[Model]
    alias: str
    table: PartitionedTable
    age: float
    may_drop: MayDrop

    def run(self) -> int:
        """Make, drop and empty partitions; return how many."""
        if not self.table.owned:
            # Which of them may be dropped is unknown: the role may read the table, but not a partition by its name.
            if self.table.missing() or self.table.past(self.age):
                logger.warning("stator.partitions_not_owned", extra={"table": self.table.name})
            return 0
        changes: list[Callable[[CursorWrapper], None]] = [
            partial(self._execute, creation(self._connection, self.table.place, each)) for each in self._free()
        ]
        # Dropping a partition detaches it.
        changes += [
            partial(self._execute, self._spelled_out("DROP TABLE IF EXISTS {part}", each))
            for each in self.table.past(self.age)
            if self.may_drop(each)
        ]
        if self._may_empty():
            changes.append(self._empty)
        return sum(self._changed(change) for change in changes)

    def _free(self) -> list[tuple[datetime, datetime]]:
        """Return the bounds of the missing partitions, except where rows of that time are in the default partition."""
        rows: QuerySet[Model] = QuerySet(self.model, using=self.alias)
        at = self.table.column
        return [
            (lower, upper)
            for lower, upper in self.table.missing()
            if not rows.filter(**{f"{at}__gte": lower, f"{at}__lt": upper}).exists()
        ]

    def _changed(self, change: Callable[[CursorWrapper], None]) -> int:
        """Make a change in a transaction that holds the table alone; return 0 if it does not get the lock."""
        try:
            with locked(self._connection, self.table.place) as cursor:
                change(cursor)
        except OperationalError as error:
            if not is_locked(error):
                raise
            logger.info("stator.partitions_locked", extra={"table": self.table.name})
            return 0
        return 1

    def _execute(self, statement: str, cursor: CursorWrapper) -> None:
        cursor.execute(statement)

    def _empty(self, cursor: CursorWrapper) -> None:
        """Empty the default partition at once, which leaves no dead rows."""
        if self.table.default and self._may_empty():
            cursor.execute(self._spelled_out("TRUNCATE {part}", self.table.default))

    def _may_empty(self) -> bool:
        """Return whether the default partition has rows, and all of them may be dropped."""
        rest = rest_of(self._connection, self.table)
        return bool(rest and rest.upper and self.table.is_past(rest.upper, self.age) and self.may_drop(rest))

    def _spelled_out(self, statement: str, partition: Partition) -> str:
        return spelled_out(self._connection, statement, part=(self.table.schema, partition.name))

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        connection: BaseDatabaseWrapper = connections[self.alias]
        return connection


def rest_of(connection: BaseDatabaseWrapper, table: PartitionedTable) -> Partition | None:
    """Return the default partition with the times of its rows; None if it has none."""
    if table.default is None:
        return None
    statement = spelled_out(connection, ENDS, column=table.column, part=(table.schema, table.default.name))
    [(lower, upper)] = fetch_all(connection, statement)
    if upper is None:
        return None
    return Partition(table.default.name, datetime.fromtimestamp(lower, UTC), datetime.fromtimestamp(upper, UTC) + TICK)


def creation(
    connection: BaseDatabaseWrapper, table: tuple[str, str], bounds: tuple[datetime, datetime] | None = None
) -> str:
    """Return the statement that makes a partition of a table (schema and name); without bounds the default one."""
    schema, name = table
    if bounds is None:
        return spelled_out(connection, DEFAULT, table=table, part=(schema, f"{name}_default"))
    lower, upper = bounds
    part = (schema, f"{name}_{lower:%Y%m%d}")
    return spelled_out(connection, CREATE, table=table, part=part, lower=lower, upper=upper)


def is_locked(error: BaseException) -> bool:
    """Return whether a statement waited too long for a lock."""
    return getattr(error.__cause__, "sqlstate", None) == NOT_AVAILABLE


@contextmanager
def locked(connection: BaseDatabaseWrapper, table: tuple[str, str]) -> Iterator[CursorWrapper]:
    """Run a block in a transaction that holds a table (schema and name) alone; yield a cursor."""
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{WAIT * 1000:.0f}ms"])
        # Without its partitions: statements whose partitions are known go through the table, too.
        cursor.execute(spelled_out(connection, "LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE", table=table))
        yield cursor
