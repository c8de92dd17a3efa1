"""Statements that Django compiles once, and that are then sent with different values.

Building a query with the ORM and compiling it takes ten times as long as the database takes to run it. A statement is
therefore built once with a :class:`Parameter` for each value that changes, and cached.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any, Generic, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    BigIntegerField,
    BooleanField,
    CharField,
    Expression,
    F,
    Field,
    FloatField,
    ForeignKey,
    Func,
    Model,
    PositiveIntegerField,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
)
from django.db.models.constants import OnConflict
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.sql import AND, InsertQuery, Query, UpdateQuery
from django.db.models.sql.compiler import SQLCompiler

from stator.capabilities import capabilities_of

# A full cache is emptied. There are many shapes, for instance, if each claim asks for a different number of rows.
MAX_CACHED = 500


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Where a statement has a value to be given, and the field that converts it; None if it is sent as it is."""

    name: str
    field: Field | None = None


class JsonText(str):
    """A value of a JSON field that is encoded already."""

    __slots__ = ()


class Parameter(Value):
    """A named value that is given when the statement is sent; usable wherever ``Value`` is."""

    def __init__(self, name: str, field: Field | None) -> None:
        super().__init__(name, output_field=field)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Return a placeholder, whose parameter is the place for the value."""
        return "%s", [Placeholder(self.value, self.output_field)]


@dataclass(frozen=True, slots=True)
class Statement:
    """The text of a statement and its parameters in order; some parameters are places for values."""

    text: str
    params: tuple[object, ...] = ()

    @classmethod
    def of(cls, *parts: "str | Statement") -> "Statement":
        """Return parts, which are text or statements, as one statement."""
        every = [cls(part) if isinstance(part, str) else part for part in parts]
        return cls("".join(part.text for part in every), tuple(param for part in every for param in part.params))

    def bind(self, connection: BaseDatabaseWrapper, values: Mapping[str, object]) -> list[Any]:
        """Return all parameters, with these values in their places."""
        return [
            _prepared(param.field, values[param.name], connection) if type(param) is Placeholder else param
            for param in self.params
        ]


def fetch_all(
    connection: BaseDatabaseWrapper, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None
) -> list[Any]:
    """Return the rows of a statement, by a cursor of Django."""
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        return list(cursor.fetchall())


# Plain values that fields of these classes leave as they are; asking the field would take as long as the rest.
PLAIN_VALUES = {str, int, float, bool, NoneType}
PLAIN_FIELDS = {
    BigIntegerField, BooleanField, CharField, FloatField, ForeignKey, PositiveIntegerField, TextField,
}  # fmt: skip


def _prepared(field: Field | None, value: object, connection: BaseDatabaseWrapper) -> object:
    kind = type(value)
    if field is None or kind is JsonText or (kind in PLAIN_VALUES and type(field) in PLAIN_FIELDS):
        return value
    return field.get_db_prep_save(value, connection)


# ``{name}`` for a hole, ``%(name)s`` for a value.
_HOLE = re.compile(r"\{(\w+)\}|%\((\w+)\)s")


def written(text: str, **holes: str | Statement) -> Statement:
    """Return a text as a statement: each ``{name}`` is filled, and each ``%(name)s`` is the place of a value.

    Holes are for quoted names, and for lists and conditions that are built of them.
    """
    parts: list[str | Statement] = []
    end = 0
    for match in _HOLE.finditer(text):
        hole, name = match.groups()
        given = holes[hole] if hole else Statement("%s", (Placeholder(name),))
        parts += [text[end : match.start()], given]
        end = match.end()
    return Statement.of(*parts, text[end:])


def numbered(text: str) -> str:
    """Return a text with ``$1``, ``$2`` and so on in place of its placeholders."""
    first, *others = text.split("%s")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, start=1))


def is_one_of(rows: QuerySet[Model], pks: Collection[object], name: str = "pk") -> Q | Func:
    """Return whether a row's key is one of many; on PostgreSQL as one array, at a seventh of the cost of parameters.

    ``name``: "pk", or a relation to another model whose keys these are.
    """
    connection = connections[str(rows.db)]
    if not capabilities_of(connection).has_arrays or (name == "pk" and rows.model._meta.is_composite_pk):
        return Q(**{f"{name}__in": pks})
    field: Any = rows.model._meta.pk if name == "pk" else rows.model._meta.get_field(name)
    keys = Value([field.get_db_prep_value(pk, connection) for pk in pks])
    template = "(%(expressions)s))"
    return Func(F(name), keys, template=template, arg_joiner=" = ANY(", output_field=BooleanField())


def names_one_row(rows: QuerySet[Model]) -> bool:
    """Return whether a queryset has one row at most, because one of its conditions is the value of the key."""
    where, key = rows.query.where, rows.model._meta.pk
    return (
        where.connector == AND
        and not where.negated
        and any(isinstance(each, Exact) and _is_value_of(each, rows.query.base_table, key) for each in where.children)
    )


def _is_value_of(lookup: Exact, table: object, key: object) -> bool:
    column = lookup.lhs
    return isinstance(column, Col) and (column.alias, column.target) == (table, key) and lookup.rhs_is_direct_value()


def has_own_conditions(rows: QuerySet[Model]) -> bool:
    """Return whether all conditions of a queryset are on columns of its rows, without another table or a subquery."""
    query = rows.query
    if query.is_sliced or query.distinct or query.combinator or query.annotations or query.extra:
        return False
    if any(used and alias != query.base_table for alias, used in query.alias_refcount.items()):
        return False
    return all(
        isinstance(leaf, Expression) and not any(isinstance(each, Query | Subquery) for each in leaf.flatten())
        for leaf in query.where.leaves()
    )


def selecting(rows: QuerySet[Model, object]) -> Statement:
    """Return the SELECT of a queryset, even if Django knows that it is empty."""
    text, params = rows.query.get_compiler(using=rows.db, elide_empty=False).as_sql()
    return Statement(text, tuple(params))


def existing(rows: QuerySet[Model, object]) -> Statement:
    """Return the condition that a queryset has rows."""
    return Statement.of("EXISTS (", selecting(rows.order_by().values("pk")[:1]), ")")


def first(rows: QuerySet[Model, object]) -> Statement:
    """Return an expression for the value in the first row of a queryset, null without one."""
    return Statement.of("(", selecting(rows[:1]), ")")


def counting(rows: QuerySet[Model, object], most: int) -> Statement:
    """Return an expression for the number of rows, counted up to ``most``."""
    return Statement.of("(SELECT COUNT(*) FROM (", selecting(rows.order_by().values("pk")[:most]), ") counted)")


def updating(rows: QuerySet[Model], values: Mapping[str, object]) -> Statement:
    """Return the UPDATE of the rows of a queryset."""
    update: Any = rows.query.chain(UpdateQuery)
    update.add_update_values(values)
    update.clear_ordering(force=True)
    text, params = update.get_compiler(using=rows.db).as_sql()
    return Statement(text, tuple(params))


def replacing(row: Model, alias: str, names: Sequence[str]) -> Statement:
    """Return the INSERT of a row that gives these fields of a row with its key their new values."""
    meta = row._meta
    query = InsertQuery(
        type(row), on_conflict=OnConflict.UPDATE, update_fields=[meta.get_field(name) for name in names],
        unique_fields=[meta.pk],
    )  # fmt: skip
    query.insert_values(meta.concrete_fields, [row])
    [(text, params)] = query.get_compiler(using=alias).as_sql()
    return Statement(text, tuple(params))


Compiled = TypeVar("Compiled")
Row = TypeVar("Row")


class StatementCache(Generic[Compiled]):
    """A cache of statements by their shape: all that their text depends on, such as the model and a limit."""

    def __init__(self) -> None:
        self._statements: dict[Hashable, Compiled] = {}

    def get(self, shape: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """Return the statement of this shape, which ``make`` builds the first time."""
        compiled = self._statements.get(shape)
        if compiled is None:
            if len(self._statements) >= MAX_CACHED:
                self._statements.clear()
            compiled = self._statements[shape] = make()
        return compiled


def united(parts: Sequence[QuerySet[Model, Row]]) -> Iterable[Row]:
    """Return the rows of queries on one database, each with a limit and equal columns; one statement if it can be one.

    The rows of one query may come in any order.
    """
    first, *others = parts
    if others and connections[str(first.db)].features.supports_slicing_ordering_in_compound:
        return first.union(*others, all=True)
    return chain.from_iterable(parts)


def joined(parts: Sequence[Statement], by: str) -> Statement:
    """Return statements as one, with text between them."""
    with_text: list[str | Statement] = []
    for part in parts:
        with_text += [by, part] if with_text else [part]
    return Statement.of(*with_text)
