"""A model's options in its ``class StatorMeta``, the owner of its columns, and its states by name."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import IntegerField, JSONField, Model, Q

from stator.graph import State, StateGraph
from stator.rows.columns import FRAMEWORK_COLUMNS


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a managed model.

    ``history``: write one row per move, error and manual action. ``reconcile_on``: names of fields; when one of them
    changes, the object is reconciled: attempted again, from the initial state if it was in a terminal one.
    ``priority``: name of an integer field; ready rows with smaller numbers are claimed sooner. ``fair_by``: name of a
    field whose values take turns. ``waits_for``: names of relations, each with the names of the states of the related
    object that end the waiting. ``claimable``: a function (a ``staticmethod``) of a worker's id and a ``Q`` of the rows
    that pauses hold. It returns a ``Q`` of the ready rows that this worker may claim, and is called at each poll and
    each claim, so it has to be quick. ``reasons`` and ``notices``: functions of a database's alias. The first returns
    further reasons of :func:`~stator.explain.explain_counts`: a ``Q`` of rows for each code, which come before
    ``no_worker``. The second returns :class:`~stator.explain.notices.Notice` objects.
    """

    history: bool = False
    reconcile_on: tuple[str, ...] = ()
    priority: str | None = None
    fair_by: str | None = None
    waits_for: tuple[tuple[str, tuple[str, ...]], ...] = ()
    claimable: Callable[[str, Q], Q] | None = None
    reasons: Callable[[str], dict[str, Q]] | None = None
    notices: Callable[[str], Iterable[Any]] | None = None


def owner_of(model: type[Model]) -> Any:
    """Return the model whose own table has the framework's columns: a parent, under multi-table inheritance."""
    return model._meta.get_field("state").model._meta.concrete_model


def managed(models: list[Any]) -> list[Any]:
    """Return the models whose own tables have the state, each once; a child counts as its parent."""
    return list(dict.fromkeys(map(owner_of, models)))


def graph_of(model: Any) -> type[StateGraph]:
    """Return the graph of a managed model."""
    graph: type[StateGraph] = model.state_graph
    return graph


def named_state(model: Any, state: State | str) -> State:
    """Return the graph's state with that name; raise ``ValueError`` with the known names if there is none."""
    found: State | None = model.state_graph.states.get(str(state))
    if found is None:
        raise ValueError(
            f"{str(state)!r} is not a state of {model.state_graph.__name__}; "
            f"its states are {', '.join(model.state_graph.states)}"
        )
    return found


@lru_cache(maxsize=1024)
def options_of(model: Any) -> ModelOptions:
    """Return the options of a model; raise ``ImproperlyConfigured`` with one line if one is wrong."""
    declared = getattr(model, "StatorMeta", None)
    given = {name: getattr(declared, name) for name in dir(declared) if not name.startswith("_")} if declared else {}
    for name, value in given.items():
        if name not in _CHECKS:
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta has no option {name!r}; {_remedy(name)}")
        if trouble := _CHECKS[name](model, value):
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta.{name}={value!r} {trouble}")
    return ModelOptions(**{name: _kept(value) for name, value in given.items()})


def _kept(value: Any) -> Any:
    """Return the value of an option as an immutable one."""
    if isinstance(value, dict):
        return tuple((name, tuple(map(str, states))) for name, states in value.items())
    return tuple(value) if isinstance(value, list) else value


def _remedy(name: str) -> str:
    close = get_close_matches(name, _CHECKS, 1)
    return f"did you mean {close[0]!r}?" if close else f"options are {', '.join(_CHECKS)}"


def _wrong_function(model: Any, value: Any) -> str:
    return "" if callable(value) else "must be a function from the id of a worker and a Q to a Q"


def _wrong_finder(model: Any, value: Any) -> str:
    return "" if callable(value) else "must be a function of a database's alias"


def _wrong_flag(model: Any, value: Any) -> str:
    return "" if isinstance(value, bool) else "must be True or False"


def _wrong_fields(model: Any, value: Any) -> str:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return "must be a list of field names"
    return next(
        (f"names {name!r}, which is not a field with a column" for name in value if not _has_column(model, name)), ""
    )


def _wrong_priority(model: Any, value: Any) -> str:
    if trouble := _wrong_key(model, value):
        return trouble
    if value is None or isinstance(field := model._meta.get_field(value), IntegerField):
        return ""
    return f"is a {type(field).__name__}; it must be an integer field"


def _wrong_key(model: Any, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "must be the name of a field"
    if not _has_column(model, value):
        return "is not a field with a column"
    field = model._meta.get_field(value)
    if field.model is not model._meta.get_field("state").model:
        return f"is in the table of {field.model.__name__}; it must be in the table with the state"
    if field.null:
        return "may be null; give it a default instead"
    return "is a JSONField, whose values have no order" if isinstance(field, JSONField) else ""


def _wrong_waits(model: Any, value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return "must map names of relations to lists of states"
    return next((trouble for wait in value.items() for trouble in _troubles(model, *wait)), "")


def _troubles(model: Any, name: Any, states: Any) -> Iterator[str]:
    """Yield what is wrong with an awaited relation, as far as its own table shows."""
    field = model._meta.get_field(name) if isinstance(name, str) and _has_column(model, name) else None
    if field is None or not (field.many_to_one or field.one_to_one):
        yield f"names {name!r}, which is not a ForeignKey or OneToOneField"
    elif field.model is not model._meta.get_field("state").model:
        yield f"names {name!r}, which is in the table of {field.model.__name__}; it must be in the table with the state"
    if not isinstance(states, list | tuple) or not states:
        yield f"must have a list of states for {name!r}"
    elif not all(isinstance(state, State | str) for state in states):
        yield f"has a value for {name!r} that is not a state"


def _has_column(model: Any, name: str) -> bool:
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    return bool(getattr(field, "concrete", False)) and name not in (*FRAMEWORK_COLUMNS, "state")


_CHECKS: dict[str, Callable[[Any, Any], str]] = {
    "history": _wrong_flag,
    "reconcile_on": _wrong_fields,
    "priority": _wrong_priority,
    "fair_by": _wrong_key,
    "waits_for": _wrong_waits,
    "claimable": _wrong_function,
    "reasons": _wrong_finder,
    "notices": _wrong_finder,
}
