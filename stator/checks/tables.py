"""Checks of a managed model: its state field, primary key, indexes, waits and saved fields."""

from collections.abc import Iterator
from difflib import get_close_matches

from django.core import checks
from django.db import DEFAULT_DB_ALIAS
from django.db.models import CharField, Model, TextField

from stator.checks.messages import message
from stator.db.tables import wrong_expressions
from stator.extensions.related.checks import check_waits, check_watches
from stator.models import StatorModel
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.indexes import own_indexes
from stator.rows.keys import KEY_LENGTH, has_usable_key, value_field
from stator.rows.meta import options_of, owner_of
from stator.rows.spread import SpreadField, spread_field, wrong_spread
from stator.rows.state_column import StateField


def check_model(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """Yield the problems with one subclass of StatorModel."""
    owns = _state_field(model) is not None and owner_of(model) is model
    for check in (*CHECKS, *(CHECKS_OF_OWNERS if owns else ())):
        yield from check(model)


def check_state_field(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E101: workers cannot attempt rows without a state."""
    if _state_field(model) is None:
        hint = "Add state = StateField(YourGraph), under any name, or inherit models.Model."
        yield message("E101", f"{model.__name__} inherits StatorModel, but it has no StateField.", hint, model)


def check_state_fields(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E106: an object has one state."""
    own, name = _state_field(model), model.__name__
    for field in model._meta.local_fields:
        if own is not None and isinstance(field, StateField) and field is not own:
            text = f"{name}.{field.name} is a StateField beside {name}.{own.name}; an object has one state."
            hint = f"Move {field.name} to a model of its own, with a OneToOneField to {name}."
            yield message("E106", text, hint, model)


def check_columns(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E112: the framework's columns keep their names, so a table that is managed has none of them before."""
    ours = {field.name: field.creation_counter for field in StatorModel._meta.local_fields}
    present = {field.name: field.creation_counter for field in model._meta.concrete_fields}
    for name in sorted(name for name, counter in ours.items() if present.get(name) != counter):
        text = f"{model.__name__}.{name} is not the column of Stator with this name, which workers write."
        hint = f"Rename your field {name} and its column by migrations.RenameField, before you inherit StatorModel."
        yield message("E112", text, hint, model)


def check_plain_model(model: type[Model]) -> Iterator[checks.CheckMessage]:
    """E107: workers know only subclasses of StatorModel."""
    name = model.__name__
    for field in model._meta.local_fields:
        if isinstance(field, StateField):
            text = f"{name}.{field.name} is a StateField, but {name} does not inherit StatorModel: nothing moves it."
            hint = f"Let {name} inherit stator.models.StatorModel, or make {field.name} a CharField."
            yield message("E107", text, hint, model)


def check_parents(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """W104, E108: under multi-table inheritance, the state and its options belong to the parent."""
    if _state_field(model) is None or (owner := owner_of(model)) is model:
        return
    name, parent = model.__name__, owner.__name__
    text = f"{name} inherits its state from {parent}: workers attempt its objects as objects of {parent}."
    hint = (
        f"To give {name} a state of its own, let it inherit StatorModel and add a OneToOneField to {parent}. "
        "If this is intended, add stator.W104 to SILENCED_SYSTEM_CHECKS."
    )
    yield message("W104", text, hint, model)
    if "StatorMeta" in vars(model):
        text = f"{name}.StatorMeta has no effect: the state of {name} is that of {parent}."
        yield message("E108", text, f"Move its options to {parent}.StatorMeta.", model)


def check_primary_key(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E102: reports and history find rows by the text of their key, which each database writes as Python does."""
    if not has_usable_key(model):
        text = f"{model.__name__} has a composite primary key with a column that is neither an integer nor a UUID."
        hint = "Give it a primary key of one column, and a UniqueConstraint over the others."
        yield message("E102", text, hint, model)


def check_key_length(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E103: an outcome is recorded with its report, or not at all."""
    field = value_field(model._meta.pk)
    if not isinstance(field, CharField | TextField) or (field.max_length or KEY_LENGTH + 1) <= KEY_LENGTH:
        return
    length = f"of up to {field.max_length} characters" if field.max_length else "of any length"
    text = f"{model.__name__} has a primary key {length}; reports and history store at most {KEY_LENGTH} of them."
    hint = f"Give it a key that is a number or a UUID, or a CharField(max_length={KEY_LENGTH})."
    yield message("E103", text, hint, model)


def check_spread(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E111, W106: each row is in one slice, which workers can find."""
    if (field := spread_field(model)) is None:
        return
    name = options_of(model).spread
    whole = f"{model.__name__}.StatorMeta.spread={name!r}"
    if not isinstance(field, SpreadField):
        elsewhere = field.model is not owner_of(model)
        wrong = f"is in the table of {field.model.__name__}" if elsewhere else wrong_spread(field)
        if wrong:
            hint = "Name another field, or a new name for a column of Stator."
            yield message("E111", f"{whole} {wrong}.", hint, model)
        return
    others = [other.name for other in model._meta.concrete_fields if other is not field]
    for close in get_close_matches(str(name), others, 1, cutoff=0.8):
        text = f"{whole} names no field of yours, so Stator adds a column. Did you mean {close!r}?"
        yield message("W106", text, "Correct it, or add stator.W106 to SILENCED_SYSTEM_CHECKS.", model)


def check_indexes(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """W103: without its indexes, each worker scans the model's table once a second."""
    present = {index.name for index in model._meta.indexes}
    if missing := [index.name for index in own_indexes(model) if index.name not in present]:
        text = f"{model.__name__} lacks the indexes {', '.join(missing)}, which workers need."
        hint = "Do not assign to _meta.indexes. Declare your own indexes in Meta.indexes; Stator adds to them."
        yield message("W103", text, hint, model)


def check_expressions(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E110: the names in conditions and in ``then`` are those of fields; workers leave the model out if not."""
    if _state_field(model) is not None:
        for wrong in wrong_expressions(model, DEFAULT_DB_ALIAS, compiled=False):
            text, _, _ = wrong.rpartition("; ")
            yield message("E110", f"{text.rstrip('.')}.", "Workers leave the model out until it is corrected.", model)


def check_saved_fields(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E105: a state can save only fields with a column that is not the framework's."""
    field = _state_field(model)
    if field is None:
        return
    others = {*FRAMEWORK_COLUMNS, field.name, model._meta.pk.name}
    own = {column.name for column in model._meta.concrete_fields} - others
    hint = "Name fields of the model that have a column and do not belong to the framework."
    for state in field.graph.states.values():
        for name in state.saves:
            if name not in own:
                graph = field.graph.__name__
                text = f"{graph}.{state.name} saves {name!r}; {model.__name__} has no such column to save."
                yield message("E105", text, hint, model)


CHECKS = (check_state_field, check_state_fields, check_columns, check_parents, check_primary_key, check_key_length)
# The checks of a model whose own table has the state.
CHECKS_OF_OWNERS = (
    check_spread,
    check_indexes,
    check_waits,  # stator.extensions.related
    check_watches,  # stator.extensions.related
    check_expressions,
    check_saved_fields,
)


def _state_field(model: type[Model]) -> StateField | None:
    return getattr(model, "_state_field", None)
