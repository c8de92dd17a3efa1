"""The column that a report is about: which one is named, and what its model declares about it."""

import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cached_property

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from stator.commands.answer import BadInput
from stator.models import StatorModel
from stator.texts import listed, nearest

# What a row stores: a text, a number, or nothing.
Stored = str | int | None

# Names that columns with a status have.
USUAL = re.compile(r"(?i)status|state|stage|phase")


@dataclass(frozen=True)
class Target:
    """One column of a model that Stator does not manage."""

    model: type[models.Model]
    field: models.Field

    @property
    def label(self) -> str:
        """The name that the command was given, as the model spells it."""
        return f"{self.model._meta.label}.{self.column}"

    @property
    def column(self) -> str:
        """The name of the field."""
        return str(self.field.name)

    @cached_property
    def labels(self) -> dict[Stored, str]:
        """The labels of the declared values, in their order; empty without ``choices``."""
        return {value: str(label) for value, label in self.field.flatchoices}

    @property
    def default(self) -> Stored:
        """The value of new objects; None if the field has no default, or a function of the project computes it."""
        value = self.field.default
        return None if callable(value) or value is models.NOT_PROVIDED else stored(value)

    @cached_property
    def constants(self) -> dict[str, Stored]:
        """The constants beside the model that have one of the declared values, or all of them, by their names."""
        beside, known = _beside(self.model), {*self.labels} or {self.default}
        constants = [(name, stored(value)) for name, value in beside if name.isupper()]
        found: dict[str, Stored] = {name: plain for name, plain in constants if plain is not None and plain in known}
        # Without choices, an enum or a tuple whose name says that it is of this column tells the values.
        for name, value in beside:
            members = {each: plain for each, plain in _named(value) if plain is not None}
            named = self.column.lower() in name.lower()
            if {*self.labels}.issuperset(members.values()) if self.labels else named:
                found |= members
        return found


def stored(value: object) -> Stored:
    """Return what the database has for a value of the code: the value of a member of an enum."""
    plain = value.value if isinstance(value, Enum) else value
    return plain if isinstance(plain, str | int) and not isinstance(plain, bool) else None


def target_of(label: str) -> Target:
    """Return the column with this label, ``app.Model.column``; refuse others, with the nearest one."""
    where, _, column = label.rpartition(".")
    if label.count(".") != 2:
        raise BadInput(f"{label!r} must be app.Model.column{_columns_hint(label)}")
    model = _model(where)
    try:
        field = model._meta.get_field(column)
    except FieldDoesNotExist as error:
        names = [each.name for each in model._meta.concrete_fields]
        raise BadInput(
            f"{model._meta.label} has no column {column!r}; {nearest(column, names, noun='columns')}"
        ) from error
    if issubclass(model, StatorModel):
        raise BadInput(f"{model._meta.label} is managed already; see manage.py stator status {model._meta.label}")
    if not isinstance(field, models.CharField | models.TextField | models.IntegerField) or field.primary_key:
        raise BadInput(f"{label} is a {type(field).__name__}; a status is a text or an integer{_columns_hint(where)}")
    return Target(model, field)


def _model(label: str) -> type[models.Model]:
    try:
        return apps.get_model(label)
    except (LookupError, ValueError) as error:
        known = {str(model._meta.label).lower(): str(model._meta.label) for model in apps.get_models()}
        alike = [name for lower, name in known.items() if lower.endswith(f".{label.lower().rpartition('.')[2]}")]
        close = alike or [known[lower] for lower in get_close_matches(label.lower(), known, 1)]
        hint = f"did you mean {listed(close)}?" if close else "its app must be in INSTALLED_APPS"
        raise BadInput(f"{label!r} is not a model; {hint}") from error


def _columns_hint(label: str) -> str:
    """Return, for the label of a model, which of its columns may have a status."""
    try:
        fields = apps.get_model(label)._meta.concrete_fields
    except (LookupError, ValueError):
        return ""
    names = [field.name for field in fields if field.flatchoices or USUAL.search(field.name)]
    return f"; {label} has {listed(names)}" if names else ""


def _named(value: object) -> list[tuple[str, Stored]]:
    if isinstance(value, type) and issubclass(value, Enum):
        return [(name, stored(member)) for name, member in value.__members__.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(name, stored(getattr(value, name))) for name in value._fields]
    return []


def _beside(model: type[models.Model]) -> list[tuple[str, object]]:
    """Return what is named in the module of a model, then in its bases and in the model itself."""
    # The models of a migration, or of a shell, may have no module with such a name.
    holders = [sys.modules.get(model.__module__), *reversed(model.__mro__)]
    return [named for holder in holders if holder not in (None, object) for named in vars(holder).items()]
