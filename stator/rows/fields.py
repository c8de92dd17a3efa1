"""The columns of a managed table, and which of them an INSERT sends; the rest get their defaults in the database.

Migrations see plain Django fields and the names of the states.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from django.db.models.expressions import DatabaseDefault, Value
from django.db.models.lookups import Exact
from django.db.models.query_utils import DeferredAttribute
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.functional import cached_property

from stator.capabilities import capabilities_of
from stator.rows import columns, life
from stator.rows.beginning import BEGUN, FRAMEWORK_COLUMNS, UNCLAIMED
from stator.rows.clock import seconds_ahead
from stator.rows.dates import start_of
from stator.rows.left import of_graph
from stator.rows.state_column import AsDjangoField, state_of
from stator.statements import JsonText

# The claim and the life of a new row, whatever the instance says: it may be a copy of another one.
NEW: columns.Changes = {**UNCLAIMED, **life.UNMARKED}

# Making one takes longer than most values.
DECODER = json.JSONDecoder()


class CountField(AsDjangoField, models.IntegerField):
    """A number that starts at 0; Django does not read it back from a new row."""

    db_returning = False


class VersionField(AsDjangoField, models.BigIntegerField):
    """A :class:`CountField` for numbers that grow as long as the row lives."""

    db_returning = False


class ReadyField(AsDjangoField, models.BooleanField):
    """Whether the row may be attempted now; an insert derives it from the state and ``state_next_attempt``."""

    db_returning = False

    def pre_save(self, model_instance: Any, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if not add:
            return value
        state = state_of(model_instance)
        due = _is_due(model_instance.state_next_attempt)
        value = bool(value) and due and state is not None and columns.ready_at_once(state)
        if value and (start := start_of(type(model_instance), state)):
            # Only the database computes expressions, and workers ask it at their next poll.
            value = bool(start.column) and _is_due(getattr(model_instance, start.column))
        setattr(model_instance, self.attname, value)
        return value


def _is_due(due: object) -> bool:
    """Return whether a due time has passed by this host's clock; the claim compares again with the database's."""
    if not isinstance(due, datetime):
        return due is None
    if timezone.is_naive(due):
        due = timezone.make_aware(due)
    return due <= datetime.now(UTC)


class NextAttemptField(AsDjangoField, models.DateTimeField):
    """When the row is due; null means now. If it is not given and the first attempt is delayed, an insert sets it."""

    def pre_save(self, model_instance: Model, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if not add or value is not None:
            return value
        state = state_of(model_instance)
        return None if state is None else columns.first_attempt(state)


class _OfClaim(AsDjangoField):
    """A column of the claim on a row; a new row, even a copy of a claimed one, is never claimed."""

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        if not add:
            return super().pre_save(model_instance, add)
        setattr(model_instance, self.attname, None)
        return None


class ClaimField(_OfClaim, models.UUIDField):
    """The claim that holds the row."""


@ClaimField.register_lookup
class HeldBy(Exact):
    """A comparison of the claim that never reads the index of leases.

    An equality implies that the claim is not null, so PostgreSQL may use the partial index of leases. Its statistics
    usually know of no leases, so it would prefer that index to the primary key, and read all leases, present and past,
    to find one row.
    """

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[object, ...]]:
        """Compile to IS NOT DISTINCT FROM; to an equality if the other side is a column or query."""
        if not (self.rhs_is_direct_value() or isinstance(self.rhs, Value)):
            return self.as_sql(compiler, connection)
        left, params = self.process_lhs(compiler, connection)
        right, others = self.process_rhs(compiler, connection)
        return f"{left} IS NOT DISTINCT FROM {right}", (*params, *others)


class LockedUntilField(_OfClaim, models.DateTimeField):
    """Until when the claim holds the row; null with the claim."""


class MomentAttribute(DeferredAttribute):
    """Reads the database's value of a new row when it is first used, so that inserts need not return it."""

    def __get__(self, instance: Any, cls: type[models.Model] | None = None) -> Any:
        if instance is None:
            return self
        name, values = self.field.attname, instance.__dict__
        if name not in values:
            return super().__get__(instance, cls)
        if isinstance(values[name], DatabaseDefault) and instance.pk is not None and not instance._state.adding:
            instance.refresh_from_db(using=instance._state.db, fields=[name])
        return values[name]

    def __set__(self, instance: models.Model, value: object) -> None:
        # Without this method, Python would read the instance's dictionary instead of calling __get__.
        instance.__dict__[self.field.attname] = value


class JsonAttribute(DeferredAttribute):
    """Parses the text of a column when its value is first read.

    Assigning a :class:`~stator.statements.JsonText` sets the text.
    """

    field: Any

    def __get__(self, instance: Any, cls: type[models.Model] | None = None) -> Any:
        if instance is None:
            return self
        name, values = self.field.attname, instance.__dict__
        if name not in values:
            key = self.field.text_key
            if key not in values:
                return super().__get__(instance, cls)
            text = values[key]
            values[name] = None if text is None else self.field.parse(text)
        return values[name]

    def __set__(self, instance: models.Model, value: object) -> None:
        name, values = self.field.attname, instance.__dict__
        if type(value) is JsonText:
            values.pop(name, None)
            values[self.field.text_key] = value
        else:
            values[name] = value


def text_key(attribute: str) -> str:
    """Return the key of a JSON text among an instance's values, beside that of the parsed value."""
    return f"{attribute}:text"


class LazyJSONField(AsDjangoField, models.JSONField):
    """JSON that a claim leaves as text, beside the values of the instance, until somebody reads the value.

    A state that ``saves`` it writes it only if the handler has read or set it.
    """

    descriptor_class = JsonAttribute

    @cached_property
    def text_key(self) -> str:
        """The key of the text among the instance's values; no attribute has such a name."""
        return text_key(self.attname)

    @cached_property
    def parse(self) -> Callable[[str], object]:
        """Return the value of a JSON text."""
        return (self.decoder() if self.decoder else DECODER).decode

    def text_of(self, value: object) -> str:
        """Return a value as JSON text."""
        return json.dumps(value, cls=self.encoder)

    def get_db_prep_value(self, value: object, connection: BaseDatabaseWrapper, prepared: bool = False) -> object:
        if type(value) is JsonText:
            return str(value)
        return super().get_db_prep_value(value, connection, prepared)


def values_set(instance: models.Model, fields: Sequence[tuple[str, str, str | None]]) -> dict[str, object] | None:
    """Return the values of fields, each given by its name, its attribute and the key of its text.

    None if they are all :class:`LazyJSONField` that nobody has read or set since the row was claimed.
    """
    row, values, left = instance.__dict__, dict[str, object](), []
    for name, attribute, key in fields:
        if key is None or attribute in row:
            values[name] = getattr(instance, attribute)
        elif type(text := row.get(key)) is JsonText:
            values[name] = text
        else:
            left.append((name, attribute))
    if not values:
        return None
    for name, attribute in left:
        values[name] = getattr(instance, attribute)
    return values


class ChangedField(AsDjangoField, models.DateTimeField):
    """When the row entered its state, by the clock of the database."""

    db_returning = False
    descriptor_class = MomentAttribute

    def get_default(self) -> object:
        return self._moment

    @cached_property
    def _moment(self) -> object:
        # Cached: Django would create one for each instance, which takes as long as five other columns.
        return super().get_default()

    def pre_save(self, model_instance: Model, add: bool) -> object:
        # A save never writes this column, and an insert takes the database's time, so neither reads the attribute.
        if not add:
            return None
        return _spelled_out(model_instance.__dict__.get(self.attname) or super().pre_save(model_instance, add))


class MomentField(AsDjangoField, models.DateTimeField):
    """A time that an insert takes from the database's clock unless it is given."""

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        return _spelled_out(super().pre_save(model_instance, add))


def _spelled_out(value: object) -> object:
    """Return the expression of a default: Django 6 would leave it to the table's default, which SQLite has in UTC."""
    return value.get_source_expressions()[0] if isinstance(value, DatabaseDefault) else value


def fields_sent(
    model: Any, instances: Sequence[models.Model], fields: Sequence[models.Field], using: str
) -> list[models.Field]:
    """Return the fields that an INSERT of these instances must name."""
    meta: Any = model._meta
    ready, own, keys = _ready_at_once(model), model._state_field.attname, [field.attname for field in meta.pk_fields]
    # A table that Django does not create may lack the defaults.
    left = FRAMEWORK_COLUMNS if meta.managed else frozenset[str]()
    if left and _is_in_utc(using) and seconds_ahead(connections[using]):
        # The default in the table is in UTC.
        left -= {"state_changed"}
    for instance in instances:
        values = instance.__dict__
        values.update(NEW)
        if _names_key(values, keys):
            values[life.LIFE] = life.new_life()
        # Nearly always all values are the defaults.
        if left and not (
            BEGUN.items() <= values.items()
            and isinstance(values.get("state_changed"), DatabaseDefault)
            and values.get(own) in ready
        ):
            left = left - _set(values, own, ready)
    return [field for field in fields if field.name not in left]


@lru_cache(maxsize=64)
def _is_in_utc(using: str) -> bool:
    # Cached: to look a connection up takes as long as the rest of an INSERT's preparation.
    return capabilities_of(connections[using]).clock_in_utc


def _names_key(values: Mapping[str, object], keys: Sequence[str]) -> bool:
    """Return whether an INSERT names the key, which a deleted row may have had."""
    for name in keys:
        given = values.get(name)
        if given is None or isinstance(given, DatabaseDefault):
            return False
    return True


@of_graph
def _ready_at_once(model: Any) -> frozenset[object]:
    states = model.state_graph.states.values()
    return frozenset(each.value for each in states if columns.ready_at_once(each) and not start_of(model, each))


def _set(values: Mapping[str, object], own: str, ready: frozenset[object]) -> set[str]:
    """Return the columns with other values than the default, or that will get one before the insert.

    ``own``: the attribute of the state.
    """
    # A missing value is deferred and will be read when it is sent.
    names = {name for name, value in BEGUN.items() if values.get(name, values) != value}
    if not isinstance(values.get("state_changed"), DatabaseDefault):
        names.add("state_changed")
    if "state_next_attempt" in names:
        # The row starts later, so it is not ready.
        names.add("state_ready")
    if values.get(own) not in ready:
        names |= {"state_ready", "state_next_attempt"}
    return names
