"""Primary keys of one column, or of several (``CompositePrimaryKey``): their fields, their texts, and their lookups.

A composite key is a tuple. Its text is the tuple's, such as ``(3, 17)``, which databases can write as well.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import CharField, Expression, F, Field, IntegerField, Model, OuterRef, QuerySet, UUIDField, Value
from django.db.models.functions import Cast, Concat, Substr

from stator.statements import Parameter

# The length of primary keys as text; the index does not take text of unlimited length on every database.
KEY_LENGTH = 255

# How a tuple shows a UUID.
_UUID = re.compile(r"UUID\('([^']*)'\)")


def key_fields(model: type[Model]) -> list[Field]:
    """Return the fields of the primary key: one, or several of a composite key."""
    return list(model._meta.pk_fields)


def key_names(model: type[Model]) -> list[str]:
    """Return the names of :func:`key_fields`."""
    return [field.name for field in key_fields(model)]


def has_usable_key(model: type[Model]) -> bool:
    """Return whether reports and history can name the rows: parts of a composite key are numbers or UUIDs."""
    parts = map(_kept, key_fields(model))
    return not model._meta.is_composite_pk or all(isinstance(part, IntegerField | UUIDField) for part in parts)


def key_of(model: type[Model], text: str) -> Any:
    """Return the primary key with this text; raise ``ValidationError`` if it cannot be one.

    The parts of a composite key are separated by commas, in brackets or not.
    """
    fields = [_kept(field) for field in key_fields(model)]
    if not model._meta.is_composite_pk:
        return fields[0].to_python(text)
    parts = [part.strip() for part in _UUID.sub(r"\1", text).strip().removeprefix("(").removesuffix(")").split(",")]
    if len(parts) != len(fields):
        raise ValidationError(f"{text!r} is not a key of {len(fields)} parts")
    return tuple(field.to_python(part) for field, part in zip(fields, parts, strict=True))


def keys_in(rows: QuerySet[Any]) -> list[Any]:
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
        return _text(model._meta.pk, of("pk"), using)
    parts: list[Any] = [_part(field, of(field.name), using) for field in key_fields(model)]
    return Concat(Value("("), parts[0], *chain.from_iterable((Value(", "), part) for part in parts[1:]), Value(")"))


def _kept(field: Any) -> Any:
    while field.is_relation:
        field = field.target_field
    return field


def _part(field: Any, value: F | OuterRef, using: str) -> Expression:
    text = _text(field, value, using)
    return Concat(Value("UUID('"), text, Value("')")) if isinstance(_kept(field), UUIDField) else text


def _text(field: Any, value: F | OuterRef, using: str) -> Expression:
    text = Cast(value, CharField(max_length=KEY_LENGTH))
    if not isinstance(_kept(field), UUIDField) or connections[using].features.has_native_uuid_field:
        return text
    # Stored as 32 digits without hyphens.
    dash = Value("-")
    parts = [Substr(text, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return Concat(parts[0], *(part for tail in parts[1:] for part in (dash, tail)))
