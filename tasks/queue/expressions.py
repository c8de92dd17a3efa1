"""Query expressions that Django's ORM does not have for every database."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    BooleanField,
    DateTimeField,
    Func,
    IntegerField,
    Model,
    OuterRef,
    QuerySet,
    Subquery,
    TextField,
    Value,
)
from django.db.models.expressions import Combinable, Expression
from django.db.models.functions import Cast
from django.db.models.lookups import IsNull
from django.db.models.sql.compiler import SQLCompiler

from stator.capabilities import capabilities_of
from stator.models import over_nodes
from tasks.rows.tables import task_model

# The most queries that one statement unites.
UNITED = 100


def is_any(rows: QuerySet[Any]) -> IsNull:
    """Return whether any of these rows exists, evaluated for each row of the outer query.

    Use it instead of ``Exists``, which PostgreSQL may turn into a join. With stale statistics, for example after
    thousands of tasks were published to an empty queue, that join reads a whole table for each row.
    """
    first = rows if rows.query.is_sliced else rows[:1]
    return IsNull(Subquery(first.values("pk")), False)


def for_each(
    queues: QuerySet[Model],
    pks: Collection[int],
    figures: Callable[[OuterRef | int], list[Combinable]],
    read: Callable[[QuerySet[Any, Any]], Iterable[Sequence]] = list,
) -> Iterable[Sequence]:
    """Return the key of each queue with its ``figures``, which are given the key as an expression or as a value.

    On MariaDB a query in FROM cannot refer to the queue, and on Citus no query for several nodes, so there the
    statement unites one query for each queue. ``read`` returns the rows of a queryset.
    """
    if capabilities_of(connections[queues.db]).has_outer_references and not over_nodes(task_model(), queues.db):
        return read(queues.filter(pk__in=pks).values_list("pk", *figures(OuterRef("pk"))))
    each: list[QuerySet[Model, Any]] = [queues.filter(pk=pk).order_by().values_list("pk", *figures(pk)) for pk in pks]
    parts = [each[start : start + UNITED] for start in range(0, len(each), UNITED)]
    return [row for first, *others in parts for row in read(first.union(*others, all=True))]


class CountOf(Subquery):
    """The number of rows of a subquery, which has a limit."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) line)"
    output_field = IntegerField()


class FirstOf(Subquery):
    """The earliest ``since`` of the rows of a subquery."""

    template = "(SELECT MIN(line.since) FROM (%(subquery)s) line)"
    output_field = DateTimeField()


class ExactText(Cast):
    """A value as text that compares with case, whatever the collation of the connection is."""

    def __init__(self, name: str) -> None:
        super().__init__(name, TextField())

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str
    ) -> tuple[str, tuple[str | int, ...]]:
        """Return the SQL for MySQL and MariaDB."""
        template = "CONVERT(%(expressions)s USING utf8mb4) COLLATE utf8mb4_bin"
        sql, params = self.as_sql(compiler, connection, template=template)
        return sql, tuple(params)


class Names(Func):
    """Whether the ``worker_ids`` of a task name a worker, whatever characters its name has."""

    output_field = BooleanField()
    template = "(%(expressions)s)"
    arg_joiner = " ? "

    def __init__(self, worker: object) -> None:
        super().__init__("worker_ids", worker if isinstance(worker, Expression) else Value(worker))

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str) -> Any:
        """Return the SQL for SQLite."""
        template = "EXISTS (SELECT 1 FROM JSON_EACH(%(expressions)s)"
        return super().as_sql(compiler, connection, template=f"{template})", arg_joiner=") WHERE value = (", **context)

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str) -> Any:
        """Return the SQL for MySQL and MariaDB."""
        template, named = "JSON_CONTAINS(%(expressions)s)", self.source_expressions[1]
        if not isinstance(named, Value):
            return super().as_sql(compiler, connection, template=f"{template})", arg_joiner=", JSON_QUOTE(", **context)
        # The name is escaped as Django stores it, because MariaDB takes a character and its escape for different texts.
        quoted = self.copy()
        quoted.source_expressions[1] = Value(json.dumps(named.value))
        return super(Names, quoted).as_sql(compiler, connection, template=template, arg_joiner=", ", **context)
