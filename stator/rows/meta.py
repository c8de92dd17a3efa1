"""A model's options in its ``class StatorMeta``, the owner of its columns, and its states by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.db.models import Expression, Field, FloatField, GeneratedField, IntegerField, JSONField, Model, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.manager import BaseManager
from django.utils.module_loading import import_string

from stator.extensions.related.options import wrong_waits
from stator.graph.graphs import StateGraph, state_problem
from stator.graph.states import State
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.named_fields import own_field
from stator.rows.state_column import state_field
from stator.texts import nearest

M = TypeVar("M", bound=Model)
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a managed model.

    ``priority``: name of an integer field; ready rows with smaller numbers are claimed sooner. ``-`` before the name:
    larger ones. Rows without a number come last.
    ``then``: an expression of the row; rows with equal priorities are claimed in the order of its values, the smallest
    first.
    ``fair_by``: name of a field whose values take turns.
    ``spread``: name of the column that divides a large table over partitions or nodes. Each claim takes rows of
    one value. It is a field of the model, such as a tenant, or else a column with 32 values that Stator adds.
    ``waits_for``: names of relations, each with the names of the states of the related object that end the waiting.
    ``heartbeat``: name of a field with the seconds after which a worker renews the lease, if that is sooner than after
    a third of the lease. A worker checks four times a second for leases to renew.
    ``delete_manager``: name of a manager. ``delete_after`` deletes only rows that it finds, and by its ``delete()``.
    ``fixed``: names of foreign keys that are not set while a row is claimed. Edges of other models by these keys cost
    nothing for rows in which they are null. If one is set meanwhile all the same, a scheduling pass moves the waiting
    object.
    ``beside``, ``everywhere``: for Citus, labels of models with the same column of ``spread`` that are distributed
    beside this one, and of models whose tables every node has. Rows of the first kind that statements join, or compare
    with one of a slice, are of one slice.

    The others are functions, or their paths (:func:`function_of`).
    ``claimable``: ``(worker id, Q of the rows that pauses hold)`` to a ``Q`` of the ready rows that the worker may
    claim. It is called at each poll and each claim, so it has to be quick.
    ``lease_end``: ``(seconds that a claim usually lasts, moment when the attempt began)`` to an expression of the
    moment when a lease ends that is taken or renewed now. A claim lasts for three seconds at least, and no lease lasts
    longer than ``MAX_RUNTIME`` and ``LEASE``.
    ``max_runtime``: an expression of the seconds that an attempt may take, which is read at each renewal.
    ``reasons``: ``(alias)`` to further reasons of ``explain_counts()``, a ``Q`` of rows for each code, before
    ``no_worker``.
    ``of_extensions``: the options that extensions have, by name.
    """

    priority: str | None = None
    then: Expression | None = None
    fair_by: str | None = None
    spread: str | None = None
    waits_for: tuple[tuple[str, tuple[str, ...]], ...] = ()  # stator.extensions.related
    heartbeat: str | None = None
    delete_manager: str | None = None
    fixed: tuple[str, ...] = ()  # stator.extensions.related
    beside: tuple[str, ...] = ()  # stator.extensions.slices
    everywhere: tuple[str, ...] = ()  # stator.extensions.slices
    claimable: "Callable[[str, Q], Q] | str | None" = None
    lease_end: "Callable[[float, Combinable], Expression] | str | None" = None
    max_runtime: "Callable[[], Expression] | str | None" = None
    reasons: "Callable[[str], dict[str, Q]] | str | None" = None
    of_extensions: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOption:
    """An option of ``StatorMeta`` that an extension has.

    ``wrong``: return why a model cannot have a value; "" if it can. ``unset``: the value if it is not given.
    ``prepare``: called once the class of a model is made that has the option, with its value.
    """

    name: str
    wrong: Callable[[type[Model], object], str]
    unset: Any = None
    prepare: Callable[[type[Model], Any], object] | None = None


# By name.
_added: dict[str, ModelOption] = {}


def add_model_option(option: ModelOption) -> None:
    """Add the option of an extension, which a module that ``stator.models`` imports calls."""
    _added[option.name] = option


def option_of(model: type[Model], name: str) -> Any:
    """Return the value of an extension's option; None if the extension is off."""
    unset = _added[name].unset if name in _added else None
    return options_of(model).of_extensions.get(name, unset)


def prepare_options(model: type[Model]) -> None:
    """Let the extensions do what the options of a model ask of its class."""
    for name, value in options_of(model).of_extensions.items():
        if (prepare := _added[name].prepare) is not None:
            prepare(model, value)


def graph_of(model: type[Model]) -> type[StateGraph]:
    """Return the graph of a managed model; raise ``TypeError`` for another model."""
    graph = getattr(model, "state_graph", None)
    if not (isinstance(graph, type) and issubclass(graph, StateGraph)):
        raise TypeError(f"{model.__name__} is not managed by Stator; let it inherit StatorModel")
    return graph


def model_named(label: str) -> type[Any]:
    """Return the model with a label that comes from this code; raise ``LookupError`` if there is none."""
    return apps.get_model(label)


def model_of(label: str) -> type[Any] | None:
    """Return the model with a stored label; None if this code has none, as when another release has stored it."""
    try:
        return model_named(label)
    except (LookupError, ValueError):
        return None


def field_of(model: type[Model], name: str) -> Field:
    """Return a field that a model is known to have, with a column or as a relation to one object."""
    field = model._meta.get_field(name)
    if not isinstance(field, Field):
        raise TypeError(f"{model._meta.label}.{name} is a {type(field).__name__}, which is not a field of its table")
    return field


def column_of(field: Field) -> str:
    """Return the name of the column of a field that is known to have one."""
    if field.column is None:
        raise TypeError(f"{field} has no column")
    return field.column


def owner_of(model: type[M]) -> type[M]:
    """Return the model whose own table has the framework's columns: a parent, under multi-table inheritance."""
    # The parent has the field, so it is managed like the model itself.
    return cast("type[M]", state_field(model).model._meta.concrete_model)


def home_of(row: Model) -> str:
    """Return the alias of the database that a row is written to; a replica may have answered for it.

    Everything that decides about a write is read there too.
    """
    return str(router.db_for_write(type(row), instance=row))


def written_to(queryset: QuerySet[Model]) -> str:
    """Return the alias of the database that the rows of a queryset are written to."""
    hints = getattr(queryset, "_hints", {})
    return getattr(queryset, "_db", None) or str(router.db_for_write(owner_of(queryset.model), **hints))


def by_database(models: Iterable[type[M]], using: str | None = None) -> dict[str, list[type[M]]]:
    """Return models by the alias of the database that they are written to; all by ``using`` if that is given."""
    grouped: dict[str, list[type[M]]] = {}
    for model in models:
        grouped.setdefault(using or router.db_for_write(model), []).append(model)
    return grouped


def managed(models: Iterable[type[M]]) -> list[type[M]]:
    """Return the models whose own tables have the state, each once; a child counts as its parent."""
    models = list(models)
    for model in models:
        if not (isinstance(model, type) and issubclass(model, Model)):
            raise TypeError(f"{model!r:.100} is not a model; pass the class of a managed model, such as Parcel")
        if not hasattr(model, "state_graph"):
            raise TypeError(
                f"{model._meta.label} is not managed; pass a model that inherits StatorModel, such as Parcel"
            )
    return list(dict.fromkeys(map(owner_of, models)))


def named_state(model: type[Model], state: State | str | int | None) -> State:
    """Return the state with that name or value; raise ``ValueError`` with the known names if there is none."""
    graph = graph_of(model)
    if (named := state_field(model).find(state)) is not None:
        return named
    if state is None and state_field(model).null:
        label = model._meta.label
        raise ValueError(f"{label}: an object with a state cannot become unmanaged; move it to a terminal state")
    raise ValueError(state_problem(graph, state))


@lru_cache(maxsize=1024)
def options_of(model: type[Model]) -> ModelOptions:
    """Return the options of a model; raise ``ImproperlyConfigured`` with one line if one is wrong."""
    declared = getattr(model, "StatorMeta", None)
    given = {name: getattr(declared, name) for name in dir(declared) if not name.startswith("_")} if declared else {}
    checks = _CHECKS | {name: option.wrong for name, option in _added.items()}
    for name, value in given.items():
        if name not in checks:
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta has no option {name!r}; {nearest(name, checks)}")
        if trouble := checks[name](model, value):
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta.{name}={value!r} {trouble}")
    further = {name: given.pop(name) for name in _added if name in given}
    return ModelOptions(of_extensions=further, **{name: _kept(value) for name, value in given.items()})


def function_of(option: F | str | None) -> F | None:
    """Return the function that an option of ``StatorMeta`` is, or has the path of; call it once there are models."""
    return cast("F", import_string(option)) if isinstance(option, str) else option


def _kept(value: object) -> Any:
    """Return the value of an option as an immutable one."""
    if isinstance(value, dict):
        # States may be given as such.
        return tuple((str(name), tuple(map(str, each))) for name, each in value.items())
    return tuple(value) if isinstance(value, list) else value


def _wrong_function(model: type[Model], value: object, what: str = "") -> str:
    return "" if callable(value) or isinstance(value, str) else f"must be a function{what}, or the path of one"


def _wrong_labels(model: type[Model], value: object) -> str:
    is_right = isinstance(value, list | tuple) and all(isinstance(label, str) and "." in label for label in value)
    return "" if is_right else "must be a list of labels of models"


def _wrong_manager(model: type[Model], value: object) -> str:
    is_manager = isinstance(value, str) and isinstance(getattr(model, value, None), BaseManager)
    return "" if is_manager else "must be the name of a manager of the model"


def wrong_fields(model: type[Model], value: object) -> str:
    """Return why a value of an option is no list of fields with columns; empty if it is one."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return "must be a list of field names"
    return next(
        (f"names {name!r}, which is not a field with a column" for name in value if own_field(model, name) is None), ""
    )


def _wrong_priority(model: type[Model], value: object) -> str:
    name = value.removeprefix("-") if isinstance(value, str) else value
    if trouble := _wrong_key(model, name, may_be_null=True):
        return trouble
    field = own_field(model, name)
    kind = field.output_field if isinstance(field, GeneratedField) else field
    if value is None or isinstance(kind, IntegerField):
        return ""
    return f"is a {type(kind).__name__}; it must be an integer field"


def _wrong_expression(model: type[Model], value: object) -> str:
    if not isinstance(value, Expression):
        return "must be an expression"
    return "" if hasattr(getattr(model, "StatorMeta", None), "priority") else "needs a priority"


def _wrong_seconds(model: type[Model], value: object) -> str:
    return "" if isinstance(own_field(model, value), FloatField) else "must be the name of a FloatField"


def _wrong_key(model: type[Model], value: object, *, may_be_null: bool = False) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "must be the name of a field"
    if (field := own_field(model, value)) is None:
        return "is not a field with a column"
    if field.model is not state_field(model).model:
        return f"is in the table of {field.model.__name__}; it must be in the table with the state"
    if field.null and not may_be_null:
        return "may be null; give it a default instead"
    return "is a JSONField, whose values have no order" if isinstance(field, JSONField) else ""


def _wrong_spread(model: type[Model], value: object) -> str:
    if not (isinstance(value, str) and value.isidentifier()):
        return "must be the name of a field, or a name for a column"
    return "is a column of Stator; name another one" if value in (*FRAMEWORK_COLUMNS, state_field(model).name) else ""


_CHECKS: dict[str, Callable[[type[Model], object], str]] = {
    "priority": _wrong_priority,
    "fair_by": _wrong_key,
    "spread": _wrong_spread,
    "waits_for": wrong_waits,  # stator.extensions.related
    "claimable": partial(_wrong_function, what=" from the id of a worker and a Q to a Q"),
    "reasons": partial(_wrong_function, what=" of a database's alias"),
    "then": _wrong_expression,
    "lease_end": _wrong_function,
    "max_runtime": _wrong_function,
    "fixed": wrong_fields,  # stator.extensions.related
    "beside": _wrong_labels,  # stator.extensions.slices
    "everywhere": _wrong_labels,  # stator.extensions.slices
    "heartbeat": _wrong_seconds,
    "delete_manager": _wrong_manager,
}
