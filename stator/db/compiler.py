"""Columns and values of a model as SQL text in statements for PostgreSQL."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    AutoField,
    BigAutoField,
    BigIntegerField,
    BooleanField,
    Field,
    IntegerField,
    QuerySet,
    SmallAutoField,
    UUIDField,
)
from django.db.models.expressions import Col, RawSQL
from django.db.models.sql import UpdateQuery

from stator.conf import Settings
from stator.db.instances import Columns, Converter
from stator.db.interface import Claim, Operations
from stator.db.values import Instance, Pk, Row
from stator.rows.clock import Now
from stator.rows.columns import Changes
from stator.rows.meta import column_of, field_of
from stator.rows.priorities import Priority, priority_of
from stator.rows.state_column import USUAL_NAME, state_field
from stator.statements import Parameter, Placeholder, Statement


def places_of(claims: list[Claim]) -> str:
    """Return the places (``ctid``) of the claims' rows as an array, with null where a place is not known."""
    places = ",".join([f'"{claim.place}"' if claim.place else "NULL" for claim in claims])
    return f"{{{places}}}"


def array_of(values: list[Any]) -> object:
    """Return values of one type as an array; for numbers and UUIDs ten times as fast as psycopg."""
    kind = type(values[0])
    if kind is int:
        return f"{{{','.join(map(str, values))}}}"
    if kind is UUID:
        return f"{{{','.join([value.hex for value in values])}}}"
    return values


# A turn ends with the key and the row.
_without_key = itemgetter(slice(-2))

# Types whose values an array carries without a change.
PLAIN_TYPES = {
    "bigint", "boolean", "date", "double precision", "integer", "interval", "jsonb", "smallint", "text",
    "timestamp with time zone", "uuid",
}  # fmt: skip
_LIMITED_TEXT = re.compile(r"varchar(\(\d+\))?$")

# What compiles statements: a class, or one with the classes whose parts it composes.
Maker = type | tuple[type, ...]

PLAIN_KEYS = {AutoField, BigAutoField, SmallAutoField, IntegerField, BigIntegerField, UUIDField}


class Compiler:
    """One model in one database: its quoted names, types, and the values of its rows.

    All schemas of a database share it with its compiled statements: the path of the session says which one is meant.
    """

    def __init__(self, model: type[Instance], alias: str) -> None:
        self.model = model
        self._alias = alias
        self._array_types: dict[tuple[str, ...], list[str] | None] = {}
        self._statements: dict[tuple[Maker, object], list[tuple[Settings, dict[Hashable, object]]]] = defaultdict(list)

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """The connection of the calling thread."""
        return connections[self._alias]

    def statements_of(self, maker: Maker, operations: Operations) -> dict[Any, Any]:
        """Return the statements that objects of one kind have compiled for such operations, by what else varies.

        All parts share theirs, unless each has its own.
        """
        # Settings may hold lists, so they have no hash; there are few of them.
        kind = maker, operations.division.key
        for known, statements in self._statements[kind]:
            if known == operations.settings:
                return statements
        made: dict[Hashable, object] = {}
        self._statements[kind].append((operations.settings, made))
        return made

    @cached_property
    def fields(self) -> list[Field]:
        """The fields that have columns."""
        return list(self.model._meta.concrete_fields)

    @cached_property
    def names(self) -> list[str]:
        """The names of their attributes, in the same order."""
        return [field.attname for field in self.fields]

    @cached_property
    def claim_at(self) -> int:
        """The position of the claim's token among them."""
        return self.names.index("state_claim")

    @cached_property
    def columns(self) -> str:
        """Their columns as a list, each with the table's name."""
        return ", ".join(f"{self.table}.{self.quote(field.column)}" for field in self.fields)

    @cached_property
    def _priority(self) -> Priority | None:
        return priority_of(self.model)

    @property
    def priority(self) -> str:
        """The number of the priority as the beginning of an ORDER BY; "" if the model has none."""
        placing = self._priority
        return f"{placing.sql(f'{self.table}.{self.quote(placing.field.column)}')}, " if placing else ""

    def field(self, name: str) -> Field:
        """Return the field of this name."""
        return field_of(self.model, name)

    @cached_property
    def converters(self) -> list[Converter]:
        """For each converted column: its position, the column, and the converter of the server's value."""
        placed: list[Converter] = []
        for position, field in enumerate(self.fields):
            column = field.get_col(self.model._meta.db_table)
            backend = self.connection.ops.get_db_converters(column)
            converters = [*backend, *column.get_db_converters(self.connection)]
            placed.extend((position, column, converter) for converter in converters)
        return placed

    @cached_property
    def read(self) -> Columns:
        """The columns as statements return them."""
        return Columns.of(self.fields, self.converters)

    @cached_property
    def _pk_field(self) -> Field:
        return self.model._meta.pk

    @cached_property
    def _pk_is_plain(self) -> bool:
        """Whether keys are equal in Python, in parameters and in the server's answers."""
        return type(self._pk_field) in PLAIN_KEYS

    def sent(self, pks: list[Pk]) -> list[Pk]:
        """Return primary keys as they are sent to the server."""
        if self._pk_is_plain:
            return pks
        prepare, connection = self._pk_field.get_db_prep_value, self.connection
        return [prepare(pk, connection, prepared=False) for pk in pks]

    def keys_of(self, rows: list[Row]) -> list[Pk]:
        """Return the primary keys, as objects have them, of rows that begin with them."""
        if self._pk_is_plain:
            return [row[0] for row in rows]
        column, connection, to_python = self._pk_field.get_col(self.table), self.connection, self._pk_field.to_python
        keys = [row[0] for row in rows]
        for convert in self._key_converters:
            keys = [convert(key, column, connection) for key in keys]
        return [to_python(key) for key in keys]

    @cached_property
    def _key_converters(self) -> list[Callable[[object, Col, BaseDatabaseWrapper], object]]:
        """The converters of the server's keys; mostly none."""
        at = self.names.index(self._pk_field.attname)
        return [convert for position, _, convert in self.converters if position == at]

    @property
    def keeps_keys(self) -> bool:
        """Whether the server can write keys into the history as Python does."""
        return not self._key_converters

    def claimed(self, claims: list[Claim]) -> dict[str, object]:
        """Return the keys of rows, the tokens of their claims, and the place of each row's token, as arrays.

        All rows of one claim statement share one token object, so each token is formatted, sent and read once.
        """
        tokens = {id(claim.token): claim.token for claim in claims}
        places = {known: str(place) for place, known in enumerate(tokens, start=1)}
        return {
            "keys": array_of(self.sent([claim.pk for claim in claims])),
            "tokens": array_of(list(tokens.values())),
            "nth": f"{{{','.join([places[id(claim.token)] for claim in claims])}}}",
        }

    def array_types(self, names: tuple[str, ...]) -> list[str] | None:
        """Return the types of the fields' columns without limits; None if an array cannot carry one of them as it is.

        A cast to a type with a limit would cut the values.
        """
        if names not in self._array_types:
            known = [self.cast_of(self.field(name)) for name in names]
            plain = set(known) <= PLAIN_TYPES and not self.model._meta.parents
            self._array_types[names] = known if plain else None
        return self._array_types[names]

    def of_attribute(self, name: str) -> Field:
        """Return the field of an attribute; for the key of a relation, the field is the relation."""
        return self.fields[self.names.index(name)]

    def column_of(self, field: Field) -> str:
        """Return the quoted column of a field of any model."""
        return self.quote(field.column)

    def cast_of(self, field: Field) -> str:
        """Return the type of a field's column, of this or another model, without its limit."""
        return _LIMITED_TEXT.sub("text", field.rel_db_type(self.connection) or "")

    def value(self, field: Field, given: object) -> Statement:
        """Return a value of a field as SQL of its type; a :class:`Parameter` gets its value later."""
        if isinstance(given, Now):
            return Statement("statement_timestamp()")
        kind = self.cast_of(field)
        return Statement(
            f"CAST(%s AS {kind})", (Placeholder(given.value, field) if isinstance(given, Parameter) else given,)
        )

    @property
    def place(self) -> RawSQL:
        """The place of a row in its table."""
        return RawSQL(f"{self.table}.ctid", [])

    def at_place(self, table: str) -> RawSQL:
        """Return the condition that a row is where a query ``found`` it; partitions have rows in equal places.

        For IS NOT DISTINCT FROM the planner uses no index. By an equality of keys it would, without statistics, read
        the whole queue for each row.
        """
        row, pk = self.table, self.quote("pk")
        condition = f"{row}.ctid = {table}.stator_place AND {row}.{self.pk} IS NOT DISTINCT FROM {table}.{pk}"
        return RawSQL(condition, [], output_field=BooleanField())

    def in_turn(self, rows: list[Row], *, by_age: bool) -> list[Row]:
        """Return rows in the order of their turn, by the server's values; converted values may have no order."""
        names = self.names
        wanted = (self._pk_field.attname, "state_next_attempt", "state_changed")
        key, due, changed = (names.index(name) for name in wanted)
        turns: list[Any] = [(row[due] or row[changed], row[key], row) for row in rows]
        if (priority := self._priority) and not by_age:
            at = self.fields.index(priority.field)
            turns = [(priority.place(row[at]), *turn) for turn, row in zip(turns, rows, strict=True)]
        try:
            turns.sort()
        except TypeError:
            # Keys of a type without an order; rows whose turn is equal may come in any order.
            turns.sort(key=_without_key)
        return [turn[-1] for turn in turns]

    def within(self, operations: Operations, table: str = "") -> Statement:
        """Return the condition of the rows of a part, after others; nothing if the operations are on all rows."""
        return operations.division.within(table or self.table)

    @property
    def pk(self) -> str:
        """The column of the key."""
        return self.quote(self._pk_field.column)

    @cached_property
    def state(self) -> str:
        """The column of the state."""
        column = column_of(state_field(self.model))
        return column if column == USUAL_NAME else self.quote(column)

    @cached_property
    def pk_type(self) -> str:
        """The type of the key."""
        return str(self._pk_field.rel_db_type(self.connection))

    @cached_property
    def table(self) -> str:
        """The table."""
        return self.quote(self.model._meta.db_table)

    def quote(self, name: Any) -> str:
        """Return a name in quotes."""
        # A percent sign would be read as a placeholder.
        return str(self.connection.ops.quote_name(name)).replace("%", "%%")

    def assigned(self, changes: Changes) -> Statement:
        """Return the SET list of an ORM update."""
        update: Any = QuerySet(self.model, using=self._alias).query.chain(UpdateQuery)
        update.add_update_values(changes)
        statement, params = update.get_compiler(using=self._alias).as_sql()
        table = self.connection.ops.quote_name(self.model._meta.db_table)
        return Statement(statement.removeprefix(f"UPDATE {table} SET "), tuple(params))  # noqa: S608 - as Django wrote it


compiler_of = lru_cache(maxsize=256)(Compiler)
