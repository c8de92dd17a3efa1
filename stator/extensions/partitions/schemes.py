"""How a table is divided: by time, as tables of the framework are, or by the values of a column."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import names_digest

from stator.extensions.partitions.tables import DAY, following, periods_from, spelled_out, start_of
from stator.extensions.partitions.upkeep import creation
from stator.rows.spread import SPREAD
from stator.statements import fetch_all

TIMES = """
SELECT extract(epoch FROM statement_timestamp())::float8, extract(epoch FROM max({column}))::float8 FROM {table}
"""
FILLED = """
SELECT EXISTS (SELECT FROM {table}), EXISTS (SELECT FROM {table} WHERE {column} NOT IN ({values}))
"""
OUTSIDE = "SELECT {column} FROM {table} WHERE {column} NOT IN ({values}) LIMIT 1"
PART = "CREATE TABLE {part} PARTITION OF {table} FOR VALUES "

# As many bytes as a name in PostgreSQL has; further ones are cut off.
MAX_NAME = 63

Place = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The partitions of one table, as parts of statements.

    ``suffix`` ends the name of the first partition, ``bounds`` are its bounds, and ``condition`` is true for its rows.
    ``further`` are the statements that make the others. With ``copies``, rows of several partitions are there already,
    or none, so the table cannot become the first partition.
    """

    method: str
    suffix: str
    bounds: str
    condition: str
    further: tuple[str, ...]
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Scheme:
    """How tables are divided, by the value of ``column``.

    ``widened``: the kinds of keys that get the column, without which no key of a table with partitions can be; "p" is
    the primary key. ``keeps_orphans``: rows stay in partitions when what they refer to is deleted.
    """

    column: str

    operation: ClassVar[str]
    widened: ClassVar[tuple[str | None, ...]] = ("p",)
    keeps_orphans: ClassVar[bool] = False

    def divide(self, connection: BaseDatabaseWrapper, table: Place) -> Division:
        """Return the partitions of a table; raise ``CommandError`` if its rows do not fit in."""
        raise NotImplementedError

    def is_as(self, column: str, number: int, period: str | None) -> bool:
        """Return whether a table is divided so; it has ``number`` partitions by a column, each of a period if any."""
        raise NotImplementedError

    def refusal(self, what: str, remedy: str) -> CommandError:
        """Return the error that says what keeps a table from being divided, and what to do."""
        return CommandError(f"{self.operation}: {what}. {remedy}, then migrate again.")


@dataclass(frozen=True, slots=True)
class ByTime(Scheme):
    """A partition for each period; the first one has all rows that are there."""

    period: str

    operation = "PartitionByTime"
    widened = ("p", "u", None)
    keeps_orphans = True

    def divide(self, connection: BaseDatabaseWrapper, table: Place) -> Division:
        """Return the default partition and, besides the first one, the future partitions."""
        [(epoch, newest)] = fetch_all(connection, spelled_out(connection, TIMES, column=self.column, table=table))
        now = datetime.fromtimestamp(epoch, UTC)
        if newest and datetime.fromtimestamp(newest, UTC) > now + DAY:
            last = datetime.fromtimestamp(newest, UTC)
            raise self.refusal(f"{table[1]} has rows of the future, up to {last:%Y-%m-%d}", "Correct or delete them")
        # Long enough for all rows that are written before the table is converted.
        upper = following(start_of(now + DAY, self.period), self.period)
        ahead = (bounds for bounds in periods_from(now, self.period) if bounds[0] >= upper)
        return Division(
            method="RANGE",
            suffix=f"before_{upper:%Y%m%d}",
            bounds=spelled_out(connection, "FROM (MINVALUE) TO ({upper})", upper=upper),
            condition=spelled_out(connection, "{column} < {upper}", column=self.column, upper=upper),
            further=tuple(creation(connection, table, bounds) for bounds in (None, *ahead)),
        )

    def is_as(self, column: str, number: int, period: str | None) -> bool:
        """Return whether it has the column and the period, unless somebody else chose that."""
        return column == self.column and period in (None, self.period)


@dataclass(frozen=True, slots=True)
class _Numbered(Scheme):
    """A fixed number of partitions; the value of the column decides which of them has a row."""

    partitions: int

    operation = "Distribute"

    def is_as(self, column: str, number: int, period: str | None) -> bool:
        """Return whether it has the column and the number."""
        return (column, number) == (self.column, self.partitions)

    def _further(self, connection: BaseDatabaseWrapper, table: Place, bounds: list[str]) -> tuple[str, ...]:
        """Return the statements that make the partitions after the first, with these bounds."""
        parts = (part_of(table, f"part{number}") for number in range(1, self.partitions))
        return tuple(
            spelled_out(connection, PART, table=table, part=part) + bound
            for part, bound in zip(parts, bounds[1:], strict=True)
        )


@dataclass(frozen=True, slots=True)
class ByValue(_Numbered):
    """A partition for each remainder of the column's value by their number."""

    def divide(self, connection: BaseDatabaseWrapper, table: Place) -> Division:
        """Return the partitions: values that are in none are refused by the database."""
        values = [SPREAD[number :: self.partitions] for number in range(self.partitions)]
        bounds = [spelled_out(connection, "IN ({values})", values=each) for each in values]
        parts: dict[str, str | tuple[str, str]] = {"column": self.column, "table": table}
        [(filled, spread)] = fetch_all(connection, spelled_out(connection, FILLED, values=values[0], **parts))
        if spread:
            for (value,) in fetch_all(connection, spelled_out(connection, OUTSIDE, values=SPREAD, **parts)):
                what = f"{table[1]} has a row whose {self.column} is {value}; it must be from 0 to {SPREAD[-1]}"
                raise self.refusal(what, "Correct such rows")
        condition = spelled_out(connection, "{column} ", column=self.column) + bounds[0]
        copies = spread or not filled
        return Division(
            method="LIST", suffix="part0", bounds=bounds[0], condition=condition,
            further=self._further(connection, table, bounds), copies=copies,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ByHash(_Numbered):
    """A partition for each remainder of a hash of the column's value by their number."""

    def divide(self, connection: BaseDatabaseWrapper, table: Place) -> Division:
        """Return the partitions, into which all rows have to be copied."""
        bounds = [f"WITH (MODULUS {self.partitions}, REMAINDER {number})" for number in range(self.partitions)]
        return Division(
            method="HASH", suffix="part0", bounds=bounds[0], condition="true",
            further=self._further(connection, table, bounds), copies=True,
        )  # fmt: skip


def part_of(table: Place, suffix: str) -> Place:
    """Return the schema and the name of a partition; names that are cut off alike differ by a digest."""
    name, most = table[1], MAX_NAME - len(suffix) - 1
    if len(name.encode()) > most:
        digest = names_digest(name, length=8)
        name = f"{name.encode()[: most - len(digest)].decode(errors='ignore')}{digest}"
    return table[0], f"{name}_{suffix}"
