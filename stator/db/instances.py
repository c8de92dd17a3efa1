"""Instances of claimed rows: the same as from ``Model.from_db``, three times as fast if a model does not customize it.

A row that the project's code cannot read gets a stand-in: its attempt fails with the error, and the other rows go on.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model, QuerySet
from django.db.models.base import ModelState
from django.db.models.expressions import Col
from django.db.models.query_utils import DeferredAttribute
from django.db.models.signals import post_init, pre_init

from stator.db.values import Instance, Pk, Row
from stator.exceptions import PROJECT_ERRORS
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.fields import JsonAttribute, MomentAttribute
from stator.rows.keys import key_fields
from stator.rows.state_column import state_field

# The attribute of a stand-in that carries the error from the claim statement to its claim.
UNREADABLE = "_stator_unreadable"

Load = Callable[[str, list[str], Sequence[object]], Instance]
Converter = tuple[int, Col, Callable[[object, Col, BaseDatabaseWrapper], object]]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of rows as the server sends them: the names of their attributes, and what converts their values.

    ``unparsed``: the same if each :class:`~stator.rows.fields.LazyJSONField` is left as text.
    """

    names: list[str]
    converters: Sequence[Converter]
    unparsed: "Columns | None" = None

    @classmethod
    def of(cls, fields: Sequence[Field], converters: Sequence[Converter]) -> Self:
        """Return the columns of fields."""
        names = [each.attname for each in fields]
        keys = [getattr(each, "text_key", None) for each in fields]
        left = [each for each in converters if keys[each[0]] is None]
        unparsed = cls([key or name for key, name in zip(keys, names, strict=True)], left) if any(keys) else None
        return cls(names, converters, unparsed)


def load_all(
    model: "type[Instance]", connection: BaseDatabaseWrapper, columns: Columns, rows: list[Row]
) -> list[Instance]:
    """Return instances of rows as the server sent them."""
    try:
        return _load(model, connection, columns, rows)
    except PROJECT_ERRORS:  # whatever fields of the project, or its receivers, raise
        return [_load_one(model, connection, columns, row) for row in rows]


def load_rows(rows: QuerySet[Instance]) -> list[Instance]:
    """Return instances of the rows of a queryset of all fields."""
    names = [field.attname for field in rows.model._meta.concrete_fields]
    try:
        load = loader_of(rows.model)
        return [load(rows.db, names, row) for row in rows.values_list(*names)]
    except DatabaseError:
        raise
    except PROJECT_ERRORS:
        return [_load_row(rows, pk) for pk in rows.values_list("pk", flat=True)]


def loader_of(model: "type[Instance]") -> Load:
    """Return a function that makes an instance of ``(alias, names, row)``. Call it per batch: receivers come and go."""
    return _plain_loader_of(model) or model.from_db


def _plain_loader_of(model: "type[Instance]") -> Load | None:
    if not _is_plain(model) or pre_init.has_listeners(model) or post_init.has_listeners(model):
        return None
    new, notes_more, own = model.__new__, model._notes_more(), model._state_field.attname

    def load(alias: str, names: list[str], row: Sequence[object]) -> Instance:
        instance = new(model)
        state = ModelState()
        state.adding, state.db = False, alias
        values = instance.__dict__
        values["_state"] = state
        values.update(zip(names, row, strict=True))
        values["_loaded_state"] = values[own]
        if notes_more:
            instance._note_loaded()
        return instance

    return load


def _load(
    model: "type[Instance]", connection: BaseDatabaseWrapper, columns: Columns, rows: Sequence[Row]
) -> list[Instance]:
    load = _plain_loader_of(model)
    if load is None:
        load = model.from_db
    else:
        columns = columns.unparsed or columns
    values: Sequence[Any] = [list(row) for row in rows] if columns.converters else rows
    for position, column, convert in columns.converters:
        for row in values:
            row[position] = convert(row[position], column, connection)
    alias, names = connection.alias, columns.names
    return [load(alias, names, row) for row in values]


def _load_one(model: "type[Instance]", connection: BaseDatabaseWrapper, columns: Columns, row: Row) -> Instance:
    try:
        [instance] = _load(model, connection, columns, [row])
    except PROJECT_ERRORS as error:
        values = list(row)
        for position, column, convert in columns.converters:
            with suppress(*PROJECT_ERRORS):
                values[position] = convert(values[position], column, connection)
        return _stand_in(model, connection.alias, dict(zip(columns.names, values, strict=True)), error)
    return instance


def _load_row(rows: QuerySet[Instance], pk: Pk) -> Instance:
    row = rows.filter(pk=pk)
    try:
        return row.get()
    except DatabaseError:
        raise
    except PROJECT_ERRORS as error:
        names = [
            *(field.attname for field in key_fields(rows.model)),
            state_field(rows.model).name,
            *sorted(FRAMEWORK_COLUMNS),
        ]
        return _stand_in(rows.model, rows.db, row.values(*names).get(), error)


def _stand_in(model: "type[Instance]", alias: str, values: dict[str, Any], error: BaseException) -> Instance:
    instance = model.__new__(model)
    state = ModelState()
    state.adding, state.db = False, alias
    instance.__dict__.update(values, _state=state, _loaded_state=values[state_field(model).attname])
    instance.__dict__[UNREADABLE] = error
    return instance


def _is_plain(model: type[Model]) -> bool:
    """Return whether the model leaves it to Django how an instance gets its values."""
    return (
        all(map(_leaves_values, model.__mro__))
        and model.__new__ is object.__new__
        and model.__setattr__ is object.__setattr__
        and getattr(model.from_db, "only_notes", False)
        and _has_plain_attributes(model)
    )


def _leaves_values(base: type) -> bool:
    init = vars(base).get("__init__", Model.__init__)
    return init in (Model.__init__, object.__init__) or getattr(init, "only_notes", False)


@lru_cache(maxsize=1024)
def _has_plain_attributes(model: type[Model]) -> bool:
    # Django's own attributes and ours only clear values cached for an earlier value.
    return all(_is_plain_attribute(getattr(model, field.attname, None)) for field in model._meta.concrete_fields)


def _is_plain_attribute(attribute: object) -> bool:
    ours = type(attribute) in (JsonAttribute, MomentAttribute)
    return ours or (
        isinstance(attribute, DeferredAttribute) and type(attribute).__module__.startswith("django.db.models.")
    )
