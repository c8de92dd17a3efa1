"""The columns of a managed table, and which of them an INSERT sends; the rest get their defaults in the database.

Migrations see plain Django fields and the names of the states.
"""

import random
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import DatabaseDefault, Value
from django.db.models.lookups import Exact
from django.db.models.query_utils import DeferredAttribute
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.functional import cached_property

from stator.capabilities import capabilities_of
from stator.graph.graphs import StateGraph, state_problem
from stator.graph.states import State
from stator.rows import columns, life
from stator.rows.clock import seconds_ahead

# The values of a ``SpreadField``: as many as a large table needs parts on one machine or on several.
SPREAD = range(32)


class _Plain(models.Field):
    """A field that reports the plain Django field as its class, and becomes a plain field once it is copied.

    Migrations, expressions that mix columns, serializers, form libraries and fixture factories choose by the class of a
    field. Packages copy fields to models that are not managed, where nothing may depend on the other columns.
    """

    plain: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.plain

    def __deepcopy__(self, memodict: dict[int, Any]) -> Any:
        # A model inherits the fields of its abstract bases by this method, so the copy keeps its class.
        copied: Any = super().__deepcopy__(memodict)
        copied.__class__ = type(self)
        return copied


class StateField(_Plain, models.CharField):
    """The name of a state of ``graph``; accepts a ``State`` or its name wherever a value is accepted."""

    plain = models.CharField

    def __init__(self, graph: type[StateGraph], **kwargs: Any) -> None:
        if not (isinstance(graph, type) and issubclass(graph, StateGraph) and graph.states):
            raise TypeError(f"StateField() takes a StateGraph subclass, not {graph!r}")
        self.graph = graph
        kwargs.setdefault("max_length", 100)
        kwargs.setdefault("editable", False)
        kwargs["choices"] = graph.choices
        kwargs["default"] = graph.initial_state.name
        super().__init__(**kwargs)

    def __get__(self, instance: Any, owner: Any) -> str:  # type: ignore[override]
        """Return the name of the state, for type checkers: Django puts an attribute in the place of the field."""
        return str(instance.__dict__[self.attname])

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        # Migrations record the names, so that makemigrations notices when one is gone. Their order does not matter.
        kwargs["choices"] = sorted(self.graph.choices)
        return name, path, args, kwargs

    def clone(self) -> "StateField":
        """Return a copy for another model, with its graph, which the plain form for migrations lacks."""
        return StateField(self.graph, **self.deconstruct()[3])

    def to_python(self, value: object) -> Any:
        return value.name if isinstance(value, State) else super().to_python(value)

    def get_prep_value(self, value: object) -> Any:
        if type(value) is str:
            return value
        return value.name if isinstance(value, State) else super().get_prep_value(value)

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if isinstance(value, State):
            value = value.name
            setattr(model_instance, self.attname, value)
        if add and isinstance(value, str) and value not in self.graph.states:
            raise ValueError(state_problem(self.graph, value))
        return value

    def validate(self, value: Any, model_instance: Any) -> None:
        """Refuse what a save would refuse; Django leaves fields that are not editable to the code that sets them."""
        if value == getattr(model_instance, "_loaded_state", None):
            return
        if (state := self.graph.states.get(value)) is None:
            raise ValidationError(state_problem(self.graph, value), "invalid_choice")
        if not state.enter_by_hand and getattr(model_instance, "_is_moving", False):
            raise ValidationError(f"{self.graph.__name__}.{value} can be entered only by the framework", "protected")


class CountField(_Plain, models.IntegerField):
    """A number that starts at 0; Django does not read it back from a new row."""

    plain = models.IntegerField
    db_returning = False


class VersionField(_Plain, models.BigIntegerField):
    """A :class:`CountField` for numbers that grow as long as the row lives."""

    plain = models.BigIntegerField
    db_returning = False


class SpreadField(_Plain, models.SmallIntegerField):
    """Which of the parts of ``SPREAD`` a row is in, for as long as it lives.

    A key that Python knows decides, so that two rows with one key are in one part, where the database refuses the
    second. Other new rows are in any part. With a ``default``, whoever makes the rows decides.

    ``in_one_line``: the rows of all parts are in one order, and each statement is for all parts.
    """

    plain = models.SmallIntegerField

    def __init__(self, *, in_one_line: bool = False, **kwargs: Any) -> None:
        self.in_one_line = in_one_line
        super().__init__(**{"default": None} | kwargs | {"blank": True, "editable": False, "db_default": 0})

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        # Rows that exist already are in the first part.
        kwargs.pop("default", None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if value is None:
            value = part_of(model_instance.pk)
            setattr(model_instance, self.attname, value)
        return value


def part_of(key: object) -> int:
    """Return the part of a row: the same one for equal keys, any for None."""
    return random.choice(SPREAD) if key is None else SPREAD[zlib.crc32(str(key).encode()) % len(SPREAD)]


class ReadyField(_Plain, models.BooleanField):
    """Whether the row may be attempted now; an insert derives it from the state and ``state_next_attempt``."""

    db_returning = False
    plain = models.BooleanField

    def pre_save(self, model_instance: Any, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if not add:
            return value
        state = model_instance.state_graph.states.get(str(model_instance.state))
        due = _is_due(model_instance.state_next_attempt)
        value = bool(value) and due and state is not None and columns.ready_at_once(state)
        setattr(model_instance, self.attname, value)
        return value


def _is_due(due: object) -> bool:
    """Return whether a due time has passed by this host's clock; the claim compares again with the database's."""
    if not isinstance(due, datetime):
        return due is None
    if timezone.is_naive(due):
        due = timezone.make_aware(due)
    return due <= datetime.now(UTC)


class NextAttemptField(_Plain, models.DateTimeField):
    """When the row is due; null means now. If it is not given and the first attempt is delayed, an insert sets it."""

    plain = models.DateTimeField

    def pre_save(self, model_instance: Any, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if not add or value is not None:
            return value
        state = model_instance.state_graph.states.get(str(model_instance.state))
        return None if state is None else columns.first_attempt(state)


class _OfClaim(_Plain):
    """A column of the claim on a row; a new row, even a copy of a claimed one, is never claimed."""

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        if not add:
            return super().pre_save(model_instance, add)
        setattr(model_instance, self.attname, None)
        return None


class ClaimField(_OfClaim, models.UUIDField):
    """The claim that holds the row."""

    plain = models.UUIDField


@ClaimField.register_lookup
class HeldBy(Exact):
    """A comparison of the claim that never reads the index of leases.

    An equality implies that the claim is not null, so PostgreSQL may use the partial index of leases. Its statistics
    usually know of no leases, so it would prefer that index to the primary key, and read all leases, present and past,
    to find one row.
    """

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        """Compile to IS NOT DISTINCT FROM; to an equality if the other side is a column or query."""
        if not (self.rhs_is_direct_value() or isinstance(self.rhs, Value)):
            return self.as_sql(compiler, connection)
        left, params = self.process_lhs(compiler, connection)
        right, others = self.process_rhs(compiler, connection)
        return f"{left} IS NOT DISTINCT FROM {right}", (*params, *others)


class LockedUntilField(_OfClaim, models.DateTimeField):
    """Until when the claim holds the row; null with the claim."""

    plain = models.DateTimeField


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


class ChangedField(_Plain, models.DateTimeField):
    """When the row entered its state, by the clock of the database."""

    db_returning = False
    descriptor_class = MomentAttribute
    plain = models.DateTimeField

    def get_default(self) -> object:
        return self._moment

    @cached_property
    def _moment(self) -> object:
        # Cached: Django would create one for each instance, which takes as long as five other columns.
        return super().get_default()

    def pre_save(self, model_instance: Any, add: bool) -> object:
        # A save never writes this column, and an insert takes the database's time, so neither reads the attribute.
        if not add:
            return None
        return _spelled_out(model_instance.__dict__.get(self.attname) or super().pre_save(model_instance, add))


class MomentField(_Plain, models.DateTimeField):
    """A time that an insert takes from the database's clock unless it is given."""

    plain = models.DateTimeField

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        return _spelled_out(super().pre_save(model_instance, add))


def _spelled_out(value: object) -> object:
    """Return the expression of a default: Django 6 would leave it to the table's default, which SQLite has in UTC."""
    return value.get_source_expressions()[0] if isinstance(value, DatabaseDefault) else value


def fields_sent(
    model: type[models.Model], instances: Sequence[models.Model], fields: Sequence[models.Field], using: str
) -> list[models.Field]:
    """Return the fields that an INSERT of these instances must name."""
    ready = _ready_at_once(model)
    # A table that Django does not create may lack the defaults.
    left = columns.FRAMEWORK_COLUMNS if model._meta.managed else frozenset[str]()
    connection = connections[using]
    if left and capabilities_of(connection).clock_in_utc and seconds_ahead(connection):
        # The default in the table is in UTC.
        left -= {"state_changed"}
    for instance in instances:
        values = instance.__dict__
        # A new row has no claim, whatever the instance says.
        values.update(columns.UNCLAIMED)
        life.begin(instance)
        # Nearly always all values are the defaults.
        if left and not (
            columns.BEGUN.items() <= values.items()
            and isinstance(values.get("state_changed"), DatabaseDefault)
            and str(values.get("state")) in ready
        ):
            left = left - _set(values, ready)
    return [field for field in fields if field.name not in left]


@lru_cache(maxsize=1024)
def _ready_at_once(model: Any) -> frozenset[str]:
    return frozenset(state.name for state in model.state_graph.states.values() if columns.ready_at_once(state))


def _set(values: Mapping[str, object], ready: frozenset[str]) -> set[str]:
    """Return the columns with other values than the default, or that will get one before the insert."""
    # A missing value is deferred and will be read when it is sent.
    found = {name for name, value in columns.BEGUN.items() if values.get(name, values) != value}
    if not isinstance(values.get("state_changed"), DatabaseDefault):
        found.add("state_changed")
    if "state_next_attempt" in found:
        # The row starts later, so it is not ready.
        found.add("state_ready")
    if str(values.get("state")) not in ready:
        found |= {"state_ready", "state_next_attempt"}
    return found
