"""Moments that the database computes."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.expressions import Combinable
from django.db.models.sql.compiler import SQLCompiler

from stator.models import Now


class Later(Func):
    """The time ``seconds`` (a number or an expression) after ``since``; by default after the database's now.

    Django cannot add a column of seconds to a time.
    """

    output_field = DateTimeField()
    arity = 2

    def __init__(self, seconds: Combinable | float, since: Combinable | str | None = None) -> None:
        super().__init__(Now() if since is None else since, seconds)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str) -> Any:  # type: ignore[override]
        """Return the SQL for PostgreSQL."""
        return super().as_sql(
            compiler, connection, template="(%(expressions)s * interval '1 second')", arg_joiner=" + ", **context
        )

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str) -> Any:
        """Return the SQL for SQLite, which stores moments as text."""
        template = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', %(expressions)s || ' seconds')"
        return super().as_sql(compiler, connection, template=template, **context)

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str) -> Any:
        """Return the SQL for MySQL and MariaDB."""
        swapped = self.copy()
        swapped.source_expressions = self.source_expressions[::-1]
        template = "TIMESTAMPADD(MICROSECOND, 1000000 * %(expressions)s)"
        return Func.as_sql(swapped, compiler, connection, template=template, **context)
