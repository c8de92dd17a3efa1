"""What Django's ORM cannot say by itself on every database."""

from collections.abc import Collection
from typing import Any

from django.db import connections
from django.db.models import BooleanField, DateTimeField, F, Func, Q, QuerySet, Subquery, Value
from django.db.models.functions import Now
from django.db.models.lookups import IsNull


def is_any(rows: QuerySet[Any]) -> IsNull:
    """Whether there is any of these rows, asked anew for each row of the query around it.

    ``Exists`` PostgreSQL may turn into a join, and into one that reads a whole table for each row where its statistics
    are of another time: when thousands of tasks have just been published to a queue that was empty.
    """
    first = rows if rows.query.is_sliced else rows[:1]
    return IsNull(Subquery(first.values("pk")), False)


def is_one_of(rows: QuerySet[Any], pks: Collection[int]) -> Any:
    """Whether the key of a row is one of many: on PostgreSQL one value, for a seventh of what as many values cost."""
    if connections[rows.db].vendor != "postgresql":
        return Q(pk__in=pks)
    template = "(%(expressions)s))"
    return Func(F("pk"), Value([*pks]), template=template, arg_joiner=" = ANY(", output_field=BooleanField())


class Later(Func):
    """The moment so many seconds, a number or an expression, after another; by default after the database's now.

    Django's own sums of moments and durations take no length of time from a column of seconds.
    """

    output_field = DateTimeField()
    arity = 2

    def __init__(self, seconds: Any, since: Any = None) -> None:
        super().__init__(Now() if since is None else since, seconds)

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> Any:  # type: ignore[override]
        """PostgreSQL."""
        return super().as_sql(
            compiler, connection, template="(%(expressions)s * interval '1 second')", arg_joiner=" + ", **context
        )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite, where moments are texts."""
        template = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', %(expressions)s || ' seconds')"
        return super().as_sql(compiler, connection, template=template, **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """MySQL and MariaDB."""
        swapped = self.copy()
        swapped.source_expressions = self.source_expressions[::-1]
        template = "TIMESTAMPADD(MICROSECOND, 1000000 * %(expressions)s)"
        return Func.as_sql(swapped, compiler, connection, template=template, **context)
