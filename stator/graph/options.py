"""Validation of the options of a State. Independent of Django."""

import sys
from collections.abc import Callable, Mapping
from typing import TypeGuard

from stator.exceptions import GraphError
from stator.graph.backoff import MAX_SECONDS, Backoff
from stator.graph.dates import WANTED, is_date
from stator.texts import text_problem

# Of all floats that are finite.
LARGEST = sys.float_info.max


def check_options(where: str, options: Mapping[str, object]) -> None:
    """Raise ``GraphError`` for the first option with an unusable value, naming its place and what is accepted."""
    for name, (holds, wanted) in OPTIONS.items():
        if not holds(options[name]):
            raise GraphError(f"{where}: {name}={options[name]!r} must be {wanted}")


def is_seconds(value: object) -> bool:
    """Return whether a value is a positive number of seconds that a database can add to the current time."""
    return is_number(value) and 0 < value <= MAX_SECONDS


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number that fits a float; True and False are none."""
    # NaN is in no range, and math.isfinite() fails for whole numbers of more digits than any float has.
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_backoff(value: object) -> bool:
    """Return whether a value is a back-off: a :class:`Backoff` that works, seconds, or a function."""
    if not isinstance(value, Backoff):
        return callable(value) or is_seconds(value)
    well_based = _optional_seconds(value.base) and is_seconds(value.cap)
    grows = is_number(value.factor) and value.factor >= 1
    return well_based and grows and is_number(value.jitter) and 0 <= value.jitter <= 1


def _optional_seconds(value: object) -> bool:
    return value is None or is_seconds(value)


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1, or None."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _is_method_name(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.isidentifier())


def _is_value(value: object) -> bool:
    """Return whether a column can have a value for a state; True and False are none, since they are 1 and 0."""
    if isinstance(value, str):
        return len(value) <= STATE_NAME_LENGTH and not text_problem(value)
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63)


def _is_label(value: object) -> bool:
    # A lazy translation has the methods of a text, and is not read before the apps are ready.
    return value is None or hasattr(type(value), "casefold")


def _is_former_name(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value))


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) and name.isidentifier() for name in value)


SECONDS = (_optional_seconds, "a number of seconds above 0 and below a hundred years")
FLAG = (lambda value: isinstance(value, bool), "True or False")

# Of names and of stored texts.
STATE_NAME_LENGTH = 100

OPTIONS: dict[str, tuple[Callable[[object], bool], str]] = {
    "value": (_is_value, f"an integer of 64 bits, or a text of at most {STATE_NAME_LENGTH} characters"),
    "label": (_is_label, "a text"),
    "try_interval": SECONDS,
    "handler_name": (_is_method_name, "the name of a method of the graph"),
    "externally_progressed": FLAG,
    "attempt_immediately": FLAG,
    "try_at": (lambda value: value is None or is_date(value), WANTED),
    "force_initial": FLAG,
    "enter_by_hand": FLAG,
    "leave_by_hand": FLAG,
    "delete_after": SECONDS,
    "jitter": (lambda value: is_number(value) and 0 <= value < 1, "a fraction of the interval, from 0 to below 1"),
    "backoff": (is_backoff, "seconds above 0, a Backoff, or a function from the number of failures to seconds"),
    "max_failures": (is_count, "a whole number of at least 1"),
    "max_runtime": SECONDS,
    "lease": SECONDS,
    "atomic": FLAG,
    "batch": (is_count, "a whole number of objects, at least 1"),
    "concurrency": (is_count, "a whole number of at least 1"),  # stator.extensions.limits
    "expect_within": SECONDS,
    "renamed_from": (_is_former_name, "the former name of this state"),
    "quarantine": FLAG,
    "saves": (_are_names, "a list of names of fields of the model"),
}
