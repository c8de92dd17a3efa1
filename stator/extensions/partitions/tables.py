"""Which partitions a table has, and which it should have."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.extensions.slices.nodes import is_distributed
from stator.rows.spread import spread_field
from stator.scopes import TABLES
from stator.statements import fetch_all

# The periods that a partition may have, and how many partitions are made ahead of the current one.
AHEAD = {"day": 7, "week": 4, "month": 3}

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)

# The catalog has the bounds as text, in the format and the time zone of the session.
READ = r"""
SELECT n.nspname, c.relname, pg_has_role(c.relowner, 'USAGE'),
  extract(epoch FROM statement_timestamp())::float8, p.relname,
  extract(epoch FROM substring(b.bounds FROM 'FROM \(''([^'']+)''\)')::timestamptz)::float8,
  extract(epoch FROM substring(b.bounds FROM 'TO \(''([^'']+)''\)')::timestamptz)::float8
FROM pg_partitioned_table t
JOIN pg_class c ON c.oid = t.partrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhparent = c.oid
LEFT JOIN pg_class p ON p.oid = i.inhrelid
LEFT JOIN LATERAL (SELECT pg_get_expr(p.relpartbound, p.oid) AS bounds) b ON true
WHERE t.partrelid = to_regclass(%s) AND t.partstrat = 'r'
"""

DIVIDED = "SELECT EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass(%s))"


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows from ``lower`` to before ``upper``; None is without end. The default partition has neither."""

    name: str
    lower: datetime | None
    upper: datetime | None

    def overlaps(self, lower: datetime, upper: datetime) -> bool:
        """Return whether there are moments that are also between these bounds."""
        return (self.lower is None or self.lower < upper) and (self.upper is None or self.upper > lower)


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A table with partitions by a column.

    ``owned``: whether the session may change them. ``now``: the time of the database.
    """

    schema: str
    name: str
    column: str
    owned: bool
    now: datetime
    partitions: tuple[Partition, ...]

    @property
    def place(self) -> tuple[str, str]:
        """The schema and the name."""
        return self.schema, self.name

    @property
    def default(self) -> Partition | None:
        """The partition of the rows that no other one takes."""
        return next((each for each in self.partitions if each.upper is None and each.lower is None), None)

    @property
    def period(self) -> str | None:
        """The period of the newest partition; None if somebody else chose it."""
        newest = max(((each.upper, each.lower) for each in self.partitions if each.upper and each.lower), default=None)
        if newest is None:
            return None
        return next((period for period in AHEAD if following(newest[1], period) == newest[0]), None)

    def missing(self) -> list[tuple[datetime, datetime]]:
        """Return the bounds of the current partition and the future ones, without any that other partitions overlap."""
        wanted = periods_from(self.now, self.period) if self.period else ()
        return [
            (lower, upper) for lower, upper in wanted if not any(each.overlaps(lower, upper) for each in self.bounded)
        ]

    @property
    def bounded(self) -> list[Partition]:
        """All partitions except the default one."""
        return [each for each in self.partitions if each is not self.default]

    def past(self, age: float) -> list[Partition]:
        """Return the partitions that ended more than ``age`` seconds ago, the oldest first."""
        ended = [(each.upper, each) for each in self.partitions if each.upper and self.is_past(each.upper, age)]
        return [each for _, each in sorted(ended, key=lambda pair: pair[0])]

    def is_past(self, moment: datetime, age: float) -> bool:
        """Return whether a moment was more than ``age`` seconds ago."""
        return (self.now - moment).total_seconds() >= age


def start_of(moment: datetime, period: str) -> datetime:
    """Return when the period with a moment began, in UTC; a week begins on Monday."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        return day.replace(day=1)
    return day - day.weekday() * DAY if period == "week" else day


def following(start: datetime, period: str) -> datetime:
    """Return when the next period begins."""
    return start_of(start + {"day": DAY, "week": 7 * DAY, "month": 32 * DAY}[period], period)


def periods_from(moment: datetime, period: str) -> Iterator[tuple[datetime, datetime]]:
    """Yield the bounds of the period with a moment, and of those to be made ahead of it."""
    start = start_of(moment, period)
    for _ in range(AHEAD[period] + 1):
        end = following(start, period)
        yield start, end
        start = end


def partition_column(model: type[Model]) -> str:
    """Return the column that can partition the table of a model; "" for other models."""
    column: str = getattr(model, "PARTITION_COLUMN", "")
    return column


def read(model: type[Model], alias: str) -> PartitionedTable | None:
    """Return the partitions of a model's table; None if it has none."""
    connection = connections[alias]
    if not (partition_column(model) and capabilities_of(connection).has_partitions):
        return None
    rows = fetch_all(connection, READ, [connection.ops.quote_name(model._meta.db_table)])
    if not rows:
        return None
    schema, name, owned, now = rows[0][:4]
    parts = tuple(Partition(each[4], _moment(each[5]), _moment(each[6])) for each in rows if each[4])
    return PartitionedTable(schema, name, partition_column(model), owned, datetime.fromtimestamp(now, UTC), parts)


def is_partitioned(model: type[Model], alias: str) -> bool:
    """Return whether a model's table has partitions."""
    return read(model, alias) is not None


def is_divided(model: type[Model], alias: str) -> bool:
    """Return whether a managed model's table is over partitions, or nodes, by its field of ``spread``."""
    connection = connections[alias]
    if spread_field(model) is None or not capabilities_of(connection).has_partitions:
        return False
    if is_distributed(model, connection):
        return True
    [(divided,)] = fetch_all(connection, DIVIDED, [connection.ops.quote_name(model._meta.db_table)])
    return bool(divided)


def divided_by(model: type[Model], alias: str) -> str:
    """Return the name of the field by which the table of a managed model is divided; "" if it is whole."""
    spread = spread_field(model)
    return spread.name if spread is not None and is_divided(model, alias) else ""


def connect() -> None:
    """Let them say which tables are divided."""
    TABLES.divided_by, TABLES.ends_in_parts = divided_by, is_partitioned


def partitioned(alias: str) -> list[PartitionedTable]:
    """Return the tables that have partitions."""
    every = (read(model, alias) for model in apps.get_models())
    return [table for table in every if table]


# A name, a name with its schema, several names, a moment, or numbers.
Part = str | tuple[str, str] | list[str] | datetime | range


def spelled_out(connection: BaseDatabaseWrapper, template: str, **parts: Part) -> str:
    """Return a statement with these parts, its names quoted: statements on tables take no parameters."""
    return template.format(**{name: _spelled_out(connection, part) for name, part in parts.items()})


def _spelled_out(connection: BaseDatabaseWrapper, part: Part) -> str:
    if isinstance(part, datetime):
        return f"'{part.isoformat()}'"
    if isinstance(part, range):
        return ", ".join(map(str, part))
    if isinstance(part, str):
        return str(connection.ops.quote_name(part))
    return (", " if isinstance(part, list) else ".").join(map(connection.ops.quote_name, part))


def _moment(epoch: float | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
