"""Instances of claimed rows: the same as from ``Model.from_db``, three times as fast if a model does not customize it.

A row that the project's code cannot read gets a stand-in: its attempt fails with the error, and the other rows go on.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.base import ModelState
from django.db.models.expressions import Col
from django.db.models.query_utils import DeferredAttribute
from django.db.models.signals import post_init, pre_init

from stator.db.values import Instance, Pk, Row
from stator.exceptions import PROJECT_ERRORS
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.fields import MomentAttribute
from stator.rows.keys import key_fields
from stator.rows.meta import options_of
from stator.rows.state_column import state_field

# The attribute of a stand-in that carries the error from the claim statement to its claim.
UNREADABLE = "_stator_unreadable"

Load = Callable[[str, list[str], Sequence[object]], Instance]
Converter = tuple[int, Col, Callable[[object, Col, BaseDatabaseWrapper], object]]


def load_all(
    model: type[Model],
    connection: BaseDatabaseWrapper,
    names: list[str],
    rows: list[Row],
    converters: Sequence[Converter],
) -> list[Instance]:
    """Return instances of rows as the server sent them; ``converters`` convert values of columns."""
    try:
        return _load(model, connection, names, rows, converters)
    except PROJECT_ERRORS:  # whatever fields of the project, or its receivers, raise
        return [_load_one(model, connection, names, row, converters) for row in rows]


def load_rows(rows: QuerySet[Any]) -> list[Instance]:
    """Return instances of the rows of a queryset of all fields."""
    names = [field.attname for field in rows.model._meta.concrete_fields]
    try:
        load = loader_of(rows.model)
        return [load(rows.db, names, row) for row in rows.values_list(*names)]
    except DatabaseError:
        raise
    except PROJECT_ERRORS:
        return [_load_row(rows, pk) for pk in rows.values_list("pk", flat=True)]


def loader_of(model: Any) -> Load:
    """Return a function that makes an instance of ``(alias, names, row)``. Call it per batch: receivers come and go."""
    if not _is_plain(model) or pre_init.has_listeners(model) or post_init.has_listeners(model):
        return model.from_db
    new, watches, own = model.__new__, bool(options_of(model).reconcile_on), model._state_field.attname

    def load(alias: str, names: list[str], row: Sequence[object]) -> Instance:
        instance = new(model)
        state = ModelState()
        state.adding, state.db = False, alias
        values = instance.__dict__
        values["_state"] = state
        values.update(zip(names, row, strict=True))
        values["_loaded_state"] = values[own]
        if watches:
            instance._note_loaded()
        return instance

    return load


def _load(
    model: type[Model],
    connection: BaseDatabaseWrapper,
    names: list[str],
    rows: Sequence[Row],
    converters: Sequence[Converter],
) -> list[Instance]:
    values: Sequence[Any] = [list(row) for row in rows] if converters else rows
    for position, column, convert in converters:
        for row in values:
            row[position] = convert(row[position], column, connection)
    load, alias = loader_of(model), connection.alias
    return [load(alias, names, row) for row in values]


def _load_one(
    model: type[Model], connection: BaseDatabaseWrapper, names: list[str], row: Row, converters: Sequence[Converter]
) -> Instance:
    try:
        [instance] = _load(model, connection, names, [row], converters)
    except PROJECT_ERRORS as error:
        values: list[Any] = list(row)
        for position, column, convert in converters:
            with suppress(*PROJECT_ERRORS):
                values[position] = convert(values[position], column, connection)
        return _stand_in(model, connection.alias, dict(zip(names, values, strict=True)), error)
    return instance


def _load_row(rows: QuerySet[Any], pk: Pk) -> Instance:
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


def _stand_in(model: Any, alias: str, values: dict[str, Any], error: BaseException) -> Instance:
    instance = model.__new__(model)
    state = ModelState()
    state.adding, state.db = False, alias
    instance.__dict__.update(values, _state=state, _loaded_state=values[state_field(model).attname])
    instance.__dict__[UNREADABLE] = error
    return instance


def _is_plain(model: type[Model]) -> bool:
    """Return whether the model leaves it to Django how an instance gets its values."""
    return (
        model.__init__ is Model.__init__
        and model.__new__ is object.__new__
        and model.__setattr__ is object.__setattr__
        and getattr(model.from_db, "only_notes", False)
        and _has_plain_attributes(model)
    )


@lru_cache(maxsize=1024)
def _has_plain_attributes(model: type[Model]) -> bool:
    # Django's own attributes and ours only clear values cached for an earlier value.
    return all(_is_plain_attribute(getattr(model, field.attname, None)) for field in model._meta.concrete_fields)


def _is_plain_attribute(found: object) -> bool:
    ours = type(found) is MomentAttribute
    return ours or (isinstance(found, DeferredAttribute) and type(found).__module__.startswith("django.db.models."))
