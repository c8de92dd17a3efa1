"""Validation of the options of a State. Independent of Django."""

import math
from collections.abc import Callable
from typing import Any

from stator.exceptions import GraphError
from stator.graph.backoff import LONGEST, Backoff


def check_options(where: str, options: dict[str, Any]) -> None:
    """Raise ``GraphError`` for the first option with an unusable value, naming its place and what is accepted."""
    for name, (holds, wanted) in OPTIONS.items():
        if not holds(options[name]):
            raise GraphError(f"{where}: {name}={options[name]!r} must be {wanted}")


def is_seconds(value: Any) -> bool:
    """Return whether a value is a positive number of seconds that a database can add to the current time."""
    return _is_number(value) and 0 < value <= LONGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _optional_seconds(value: Any) -> bool:
    return value is None or is_seconds(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_fraction(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _is_method_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isidentifier())


def _is_former_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and bool(value))


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) and name.isidentifier() for name in value)


def _is_backoff(value: Any) -> bool:
    if not isinstance(value, Backoff):
        return callable(value) or is_seconds(value)
    well_based = _optional_seconds(value.base) and is_seconds(value.cap)
    return well_based and _is_number(value.factor) and value.factor >= 1


SECONDS = (_optional_seconds, "a number of seconds above 0 and below a hundred years")
FLAG = (_is_flag, "True or False")

OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "try_interval": SECONDS,
    "handler_name": (_is_method_name, "the name of a method of the graph"),
    "externally_progressed": FLAG,
    "attempt_immediately": FLAG,
    "force_initial": FLAG,
    "enter_by_hand": FLAG,
    "delete_after": SECONDS,
    "jitter": (_is_fraction, "a fraction of the interval, from 0 to below 1"),
    "backoff": (_is_backoff, "seconds above 0, a Backoff, or a function from the number of failures to seconds"),
    "max_failures": (_is_count, "a whole number of at least 1"),
    "max_runtime": SECONDS,
    "lease": SECONDS,
    "atomic": FLAG,
    "batch": (_is_count, "a whole number of objects, at least 1"),
    "concurrency": (_is_count, "a whole number of at least 1"),
    "expect_within": SECONDS,
    "renamed_from": (_is_former_name, "the former name of this state"),
    "quarantine": FLAG,
    "saves": (_are_names, "a list of names of fields of the model"),
}
