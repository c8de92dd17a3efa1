"""What a model says about itself in ``class StatorMeta``."""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a managed model. ``history``: keep one row per move, error and act of a person."""

    history: bool = False


def options_of(model: Any) -> ModelOptions:
    """The options of a model; ``ImproperlyConfigured`` with one line where they cannot be."""
    declared = getattr(model, "StatorMeta", None)
    given = {name: getattr(declared, name) for name in dir(declared) if not name.startswith("_")} if declared else {}
    known = [option.name for option in fields(ModelOptions)]
    for name, value in given.items():
        if name not in known:
            close = get_close_matches(name, known, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"options are {', '.join(known)}"
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta has no option {name!r}; {remedy}")
        if not isinstance(value, bool):
            raise ImproperlyConfigured(f"{model.__name__}.StatorMeta.{name}={value!r} must be True or False")
    return ModelOptions(**given)
