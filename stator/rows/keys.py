"""Primary keys of one column, or of several (``CompositePrimaryKey``): their fields, their texts, and their lookups.

A composite key is a tuple. It is stored as the tuple's text, such as ``(3, 17)``, which databases can write as well.
People read and write ``3,17``.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    CharField,
    Expression,
    F,
    Field,
    ForeignKey,
    Func,
    IntegerField,
    Model,
    OuterRef,
    QuerySet,
    TextField,
    UUIDField,
    Value,
)
from django.db.models.fields.tuple_lookups import TupleIn
from django.db.models.functions import Cast, Substr
from django.db.models.sql.compiler import SQLCompiler

from stator.statements import Parameter

# The length of primary keys as text; the index does not take text of unlimited length on every database.
KEY_LENGTH = 255

# How a tuple shows a UUID.
_UUID = re.compile(r"UUID\('([^']*)'\)")

# Composite keys as rows of a JSON text: SQLite takes 1,000 of them by ``OR`` at most.
_AMONG = "({columns}) IN (SELECT {parts} FROM json_each(%s))"


class AmongKeys(TupleIn):
    """``pk__in`` with composite keys in any collection, and any number of them on SQLite."""

    def get_prep_lookup(self) -> Iterable[object]:
        """Return the keys as Django wants them, or the query for them."""
        lookup = self
        if lookup.rhs_is_direct_value():
            lookup.rhs = list(lookup.rhs)
        return super().get_prep_lookup()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Sequence[object]]:
        """Return the condition, and its one parameter."""
        lookup = self
        if not lookup.rhs_is_direct_value():
            return self.as_sql(compiler, connection)
        fields = [column.output_field for column in lookup.lhs]
        keys = [
            [field.get_db_prep_value(part, connection) for field, part in zip(fields, key, strict=True)]
            for key in lookup.rhs
        ]
        if not keys:
            raise EmptyResultSet
        columns = ", ".join(compiler.compile(column)[0] for column in lookup.lhs)
        parts = ", ".join(f"json_extract(value, '$[{number}]')" for number in range(len(fields)))
        return _AMONG.format(columns=columns, parts=parts), [json.dumps(keys)]


def prepare_key(model: type[Model]) -> None:
    """Let ``pk__in`` of a managed model take composite keys as it takes others."""
    if model._meta.is_composite_pk:
        model._meta.pk.register_lookup(AmongKeys)


def key_fields(model: type[Model]) -> list[Field]:
    """Return the fields of the primary key: one, or several of a composite key."""
    return list(model._meta.pk_fields)


def key_names(model: type[Model]) -> list[str]:
    """Return the names of :func:`key_fields`."""
    return [field.name for field in key_fields(model)]


def value_field(field: Field) -> Field:
    """Return the field that says what a column has: of a relation, the one that it refers to."""
    while isinstance(field, ForeignKey):
        field = field.target_field
    return field


def has_usable_key(model: type[Model]) -> bool:
    """Return whether reports and history can name the rows: parts of a composite key are numbers or UUIDs."""
    parts = map(value_field, key_fields(model))
    return not model._meta.is_composite_pk or all(isinstance(part, IntegerField | UUIDField) for part in parts)


def key_of(model: type[Model], text: str) -> Hashable:
    """Return the primary key with this text; raise ``ValidationError`` if it cannot be one.

    The parts of a composite key are separated by commas, in brackets or not.
    """
    fields = [value_field(field) for field in key_fields(model)]
    if not model._meta.is_composite_pk:
        return _value_of(fields[0], text)
    parts = [part.strip() for part in _UUID.sub(r"\1", text).strip().removeprefix("(").removesuffix(")").split(",")]
    if len(parts) != len(fields):
        raise ValidationError(f"{text!r} is not a key of {len(fields)} parts")
    return tuple(_value_of(field, part) for field, part in zip(fields, parts, strict=True))


def _value_of(field: Field, text: str) -> Hashable:
    """Return the value of a column, which the database can compare with its own."""
    if "\0" in text:
        raise ValidationError("a key has no NUL")
    value = field.to_python(text)
    if not isinstance(field, CharField | TextField):
        # The database has a row for texts that forms would refuse, such as a slug with a space.
        field.run_validators(field.get_prep_value(value))
    return value


def keys_of(model: type[Model], texts: Iterable[str]) -> Iterator[tuple[object, str]]:
    """Yield the primary keys with these texts, each with its text; texts that cannot be one are left out.

    They are of a time when the model had keys of another type.
    """
    for text in texts:
        try:
            yield key_of(model, text), text
        except (ValidationError, ValueError):
            continue


def shown_key(key: object) -> str:
    """Return a primary key as people read and write it: ``3,17`` if it is composite."""
    return ",".join(map(str, key)) if isinstance(key, list | tuple) else str(key)


def shown_text(model: type[Model] | None, text: str) -> str:
    """Return the text of a key that is stored as :func:`shown_key`; as it is if the code has no such model."""
    if model is None or not model._meta.is_composite_pk:
        return text
    return next((shown_key(key) for key, _ in keys_of(model, [text])), text)


def stored_text(model: type[Model] | None, text: str) -> str:
    """Return what is stored for a key that somebody wrote as :func:`shown_key`, or as it is stored."""
    if model is None or not model._meta.is_composite_pk:
        return text
    return next((str(key) for key, _ in keys_of(model, [text])), text)


def keys_in(rows: QuerySet[Model]) -> list[Hashable]:
    """Return the primary keys of rows; Django would cut composite ones of a DISTINCT."""
    if rows.model._meta.is_composite_pk:
        return list(rows.values_list(*key_names(rows.model)))
    return list(rows.values_list("pk", flat=True))


def key_lookups(model: type[Model]) -> dict[str, Parameter]:
    """Return the lookups of the row whose key is given when the statement is sent, as :func:`key_values`."""
    if not model._meta.is_composite_pk:
        return {"pk": Parameter("pk", model._meta.pk)}
    return {field.name: Parameter(f"pk {field.name}", field) for field in key_fields(model)}


def key_values(model: type[Model], pk: Any) -> dict[str, object]:
    """Return the values of :func:`key_lookups`."""
    if not model._meta.is_composite_pk:
        return {"pk": pk}
    return {f"pk {name}": part for name, part in zip(key_names(model), pk, strict=True)}


def key_text(model: type[Model], using: str, of: Callable[[str], F | OuterRef] = OuterRef) -> Expression:
    """Return an expression for the primary key as reports store it; by default of the row of an outer query."""
    if not model._meta.is_composite_pk:
        return _Joined.of(*_text(model._meta.pk, of("pk"), using))
    parts = [_part(field, of(field.name), using) for field in key_fields(model)]
    return _Joined.of("(", *parts[0], *(one for part in parts[1:] for one in (", ", *part)), ")")


class _Joined(Func):
    """Texts that are never null, one after the other. Django's ``Concat`` nests, and SQLite's parser has a limit."""

    template = "(%(expressions)s)"
    arg_joiner = " || "

    @classmethod
    def of(cls, *parts: Expression | str) -> Expression:
        """Return the parts as one expression; some are given as text."""
        if len(parts) == 1 and not isinstance(parts[0], str):
            return parts[0]
        return cls(*(Value(part) if isinstance(part, str) else part for part in parts), output_field=CharField())

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[object, ...]]:
        """Return the expression for MySQL and MariaDB, where ``||`` is OR."""
        return self.as_sql(compiler, connection, template="CONCAT(%(expressions)s)", arg_joiner=", ")


def _part(field: Field, value: F | OuterRef, using: str) -> list[Expression | str]:
    text = _text(field, value, using)
    return ["UUID('", *text, "')"] if isinstance(value_field(field), UUIDField) else text


def _text(field: Field, value: F | OuterRef, using: str) -> list[Expression | str]:
    text = Cast(value, CharField(max_length=KEY_LENGTH))
    if not isinstance(value_field(field), UUIDField) or connections[using].features.has_native_uuid_field:
        return [text]
    # Stored as 32 digits without hyphens.
    first, *others = [Substr(text, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return [first, *(one for part in others for one in ("-", part))]
