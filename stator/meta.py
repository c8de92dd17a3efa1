"""What a model says about itself in ``class StatorMeta``."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured

from stator.columns import FRAMEWORK_COLUMNS


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a managed model.

    ``history``: keep one row per move, error and act of a person. ``reconcile_on``: names of fields; when one of them
    changes, the object is looked at again, from the initial state if it was settled.
    """

    history: bool = False
    reconcile_on: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def options_of(model: Any) -> ModelOptions:
    """The options of a model; ``ImproperlyConfigured`` with one line where they cannot be."""
    declared = getattr(model, "StatorMeta", None)
    given = {name: getattr(declared, name) for name in dir(declared) if not name.startswith("_")} if declared else {}
    for name, value in given.items():
        if name not in _CHECKS:
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta has no option {name!r}; {_remedy(name)}")
        if trouble := _CHECKS[name](model, value):
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta.{name}={value!r} {trouble}")
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    return ModelOptions(**options)


def _remedy(name: str) -> str:
    close = get_close_matches(name, _CHECKS, 1)
    return f"did you mean {close[0]!r}?" if close else f"options are {', '.join(_CHECKS)}"


def _wrong_flag(model: Any, value: Any) -> str:
    return "" if isinstance(value, bool) else "must be True or False"


def _wrong_fields(model: Any, value: Any) -> str:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return "must be a list of names of fields"
    return next(
        (f"names {name!r}, which is no field with a column" for name in value if not _has_column(model, name)), ""
    )


def _has_column(model: Any, name: str) -> bool:
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    return bool(getattr(field, "concrete", False)) and name not in (*FRAMEWORK_COLUMNS, "state")


_CHECKS: dict[str, Callable[[Any, Any], str]] = {"history": _wrong_flag, "reconcile_on": _wrong_fields}
