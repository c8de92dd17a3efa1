"""Columns and values of a model as SQL text in statements for PostgreSQL."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import AutoField, BigAutoField, BigIntegerField, IntegerField, SmallAutoField, UUIDField
from django.db.models.expressions import RawSQL
from django.db.models.sql import UpdateQuery

from stator.db import base
from stator.db.claim import Claim
from stator.db.loading import Converter
from stator.rows import columns


def places_of(claims: list[Claim]) -> str:
    """Return the places (``ctid``) of the claims' rows as an array, with null where a place is not known."""
    places = ",".join([f'"{claim.place}"' if claim.place else "NULL" for claim in claims])
    return f"{{{places}}}"


def array_of(values: list[Any]) -> Any:
    """Return values of one type as an array; for numbers and UUIDs ten times as fast as psycopg."""
    kind = type(values[0])
    if kind is int:
        return f"{{{','.join(map(str, values))}}}"
    if kind is UUID:
        return f"{{{','.join(_hexes(values))}}}"
    return values


def _hexes(values: list[UUID]) -> Iterator[str]:
    # All rows of one claim share one token object, and formatting it is slow.
    last, written = values[0], values[0].hex
    for value in values:
        if value is not last:
            last, written = value, value.hex
        yield written


PLAIN_KEYS = {AutoField, BigAutoField, SmallAutoField, IntegerField, BigIntegerField, UUIDField}

Turn = Callable[[Any], Any]


class Spelled(base.Operations):
    """Operations with statements of their own: quoted names, types, lists of assignments."""

    @cached_property
    def _fields(self) -> list[Any]:
        return list(self.model._meta.concrete_fields)

    @cached_property
    def _names(self) -> list[str]:
        return [field.attname for field in self._fields]

    @cached_property
    def _claim_at(self) -> int:
        return self._names.index("state_claim")

    @cached_property
    def _converters(self) -> list[Converter]:
        """For each converted column: its position, the column, and the converter of the server's value."""
        found: list[Converter] = []
        for position, field in enumerate(self._fields):
            column = field.get_col(self.model._meta.db_table)
            backend = self.connection.ops.get_db_converters(column)
            converters = [*backend, *column.get_db_converters(self.connection)]
            found.extend((position, column, converter) for converter in converters)
        return found

    @cached_property
    def _pk_field(self) -> Any:
        return self.model._meta.pk

    @cached_property
    def _pk_is_plain(self) -> bool:
        """Whether keys are equal in Python, in parameters and in the server's answers."""
        return type(self._pk_field) in PLAIN_KEYS

    def _sent(self, pks: list[Any]) -> list[Any]:
        """Return primary keys as they are sent to the server."""
        if self._pk_is_plain:
            return pks
        prepare, connection = self._pk_field.get_db_prep_value, self.connection
        return [prepare(pk, connection, prepared=False) for pk in pks]

    def _keys(self, found: list[Any]) -> list[Any]:
        """Return the primary keys, as objects have them, of rows that begin with them."""
        if self._pk_is_plain:
            return [row[0] for row in found]
        column, connection, to_python = self._pk_field.get_col(self._table), self.connection, self._pk_field.to_python
        keys = [row[0] for row in found]
        for convert in self._key_converters:
            keys = [convert(key, column, connection) for key in keys]
        return [to_python(key) for key in keys]

    @cached_property
    def _key_converters(self) -> list[Callable[[Any, Any, Any], Any]]:
        """The converters of the server's keys; mostly none."""
        at = [field.attname for field in self._fields].index(self.pk_name)
        return [convert for position, _, convert in self._converters if position == at]

    @property
    def _keeps_keys(self) -> bool:
        """Whether the server can write keys into the history as Python does."""
        return not self._key_converters

    @property
    def _place(self) -> RawSQL:
        """The place of a row in its table."""
        return RawSQL(f"{self._table}.ctid", [])

    def _in_turn(self, rows: list[Any], *, by_age: bool) -> list[Any]:
        """Return rows in the order of their turn, by the server's values; converted values may have no order."""
        key, turn = self._names.index(self.pk_name), self._age if by_age or not self.options.priority else self._urgency
        try:
            return sorted(rows, key=lambda row: (turn(row), row[key]))
        except TypeError:
            # Keys of a type without an order; rows whose turn is equal may come in any order.
            return sorted(rows, key=turn)

    @cached_property
    def _age(self) -> Turn:
        due, changed = (self._names.index(name) for name in ("state_next_attempt", "state_changed"))
        return lambda row: row[due] or row[changed]

    @cached_property
    def _urgency(self) -> Turn:
        age, place = self._age, self._fields.index(self.model._meta.get_field(self.options.priority))
        return lambda row: (row[place], age(row))

    @property
    def _pk(self) -> str:
        return self._quote(self._pk_field.column)

    @cached_property
    def _pk_type(self) -> str:
        return self._pk_field.rel_db_type(self.connection)

    @cached_property
    def _table(self) -> str:
        return self._quote(self.model._meta.db_table)

    def _quote(self, name: str) -> str:
        # A percent sign would be read as a placeholder.
        return self.connection.ops.quote_name(name).replace("%", "%%")

    def _assignments(self, changes: columns.Changes) -> tuple[str, Any]:
        """Return the SET list of an ORM update and its parameters."""
        update: Any = self.rows.query.chain(UpdateQuery)
        update.add_update_values(changes)
        statement, params = update.get_compiler(using=self.alias).as_sql()
        table = self.connection.ops.quote_name(self.model._meta.db_table)
        return statement.removeprefix(f"UPDATE {table} SET "), params  # noqa: S608 - as Django wrote it
