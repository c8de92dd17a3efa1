"""Query expressions that Django's ORM does not have for every database."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    Q,
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
from stator.models import SPREAD, are_apart
from stator.statements import is_one_of
from tasks.rows.tables import Rows, task_rows

# The most queries that one statement unites.
UNITED = 100

# The most queues that are asked for tasks on several nodes.
MAX_ASKED = 1000


def is_any(rows: QuerySet[Model]) -> IsNull:
    """Return whether any of these rows exists, evaluated for each row of the outer query.

    Use it instead of ``Exists``, which PostgreSQL may turn into a join. With stale statistics, for example after
    thousands of tasks were published to an empty queue, that join reads a whole table for each row.
    """
    first = rows if rows.query.is_sliced else rows[:1]
    return IsNull(Subquery(first.values("pk")), False)


# Given the tasks of a queue or a batch, returns expressions.
Figures = Callable[[Rows], list[Combinable]]


def for_each(
    queues: QuerySet[Model],
    pks: Collection[int],
    figures: Figures,
    read: Callable[[QuerySet[Model, Any]], Iterable[Sequence]] = list,
    relation: str = "queue",
) -> Iterable[Sequence]:
    """Return the key of each queue with its ``figures``; ``relation``: the tasks' relation to the queue.

    On MariaDB a query in FROM cannot refer to the queue, so there the statement unites one query for each queue.
    ``read`` returns the rows of a queryset on one server.
    """
    if not pks:
        return []
    tasks = task_rows(queues.db)
    if are_apart(tasks.model, queues.db):
        return list(_by_parts(queues, pks, figures))
    if capabilities_of(connections[queues.db]).has_outer_references:
        mine = tasks.filter(**{relation: OuterRef("pk")})
        return read(queues.filter(is_one_of(queues, pks)).values_list("pk", *figures(mine)))
    each: list[QuerySet[Model]] = [
        queues.filter(pk=pk).order_by().values_list("pk", *figures(tasks.filter(**{relation: pk}))) for pk in pks
    ]
    united = [each[start : start + UNITED] for start in range(0, len(each), UNITED)]
    return [row for first, *others in united for row in read(first.union(*others, all=True))]


def has_any(queues: QuerySet[Model], select: Callable[[Rows], Rows]) -> Q:
    """Return the condition for queues with any of the tasks that ``select`` returns, given the tasks of a queue.

    If the tasks are on several nodes, only the first ``MAX_ASKED`` queues by name can meet it.
    """
    tasks = task_rows(queues.db)
    if not are_apart(tasks.model, queues.db):
        return Q(is_any(select(tasks.filter(queue=OuterRef("pk")))))
    first = [queue.pk for queue in queues.order_by("name")[:MAX_ASKED]]
    counts = for_each(queues, first, lambda mine: [CountOf(select(mine).values("pk")[:1])])
    return Q(pk__in=[pk for pk, count in counts if count])


def _by_parts(queues: QuerySet[Model], pks: Collection[int], figures: Figures) -> Iterator[Sequence]:
    """Yield the key of each queue with its figures: a query on several nodes cannot refer to the queue, so ask each.

    One statement for the first part, and one for each other part if a queue is spread.
    """
    parts_of: dict[int, list[Sequence]] = defaultdict(list)
    asked = queues.filter(pk__in=pks)
    for part in SPREAD:
        columns = figures(task_rows(queues.db).filter(queue=OuterRef("pk"), shard=part))
        for pk, *values in asked.values_list("pk", *columns):
            parts_of[pk].append(values)
        if part == SPREAD[0]:
            asked = queues.filter(pk__in=[queue.pk for queue in asked.filter(spread=True)])
    for pk, of_parts in parts_of.items():
        known = [[value for value in each if value is not None] for each in zip(*of_parts, strict=True)]
        yield pk, *(_total(*each) if each[1] else None for each in zip(columns, known, strict=True))


def _total(figure: Combinable, of_parts: list[Any]) -> object:
    """Return one figure of all parts."""
    return getattr(figure, "total", max)(of_parts)


class CountOf(Subquery):
    """The number of rows of a subquery, which has a limit."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) line)"
    output_field = IntegerField()
    total = sum


class FirstOf(Subquery):
    """The earliest ``since`` of the rows of a subquery."""

    template = "(SELECT MIN(line.since) FROM (%(subquery)s) line)"
    output_field = DateTimeField()
    total = min


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

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: str
    ) -> tuple[str, tuple[object, ...]]:
        """Return the SQL for MySQL and MariaDB."""
        template, named = "JSON_CONTAINS(%(expressions)s)", self.source_expressions[1]
        if not isinstance(named, Value):
            return super().as_sql(compiler, connection, template=f"{template})", arg_joiner=", JSON_QUOTE(", **context)
        # The name is escaped as Django stores it, because MariaDB takes a character and its escape for different texts.
        quoted = self.copy()
        quoted.source_expressions[1] = Value(json.dumps(named.value))
        return super(Names, quoted).as_sql(compiler, connection, template=template, arg_joiner=", ", **context)
