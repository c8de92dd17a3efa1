"""Dates that the columns of a model give its objects, as graphs declare them. Independent of Django."""

import re
from datetime import timedelta

from stator.graph.durations import span

WANTED = "the name of a DateTimeField of the model, or an expression such as F(...) + F(...)"

_FIELD = re.compile(r"\bF\((\w+)\)")
_LENGTH = re.compile(r"Value\(datetime\.timedelta\((?:days=(\d+))?(?:, )?(?:seconds=(\d+))?\)\)")


def is_date(value: object) -> bool:
    """Return whether a value may stand for a date of an object: the name of a field, or an expression of Django."""
    return value.isidentifier() if isinstance(value, str) else hasattr(value, "resolve_expression")


def date_text(date: object) -> str:
    """Return what a date comes from, as people read it: ``alert_after``, or ``last_ping + grace``."""
    return _LENGTH.sub(_length, _FIELD.sub(r"\1", str(date)))


def _length(match: re.Match[str]) -> str:
    days, seconds = (int(number or 0) for number in match.groups())
    return span(timedelta(days=days, seconds=seconds).total_seconds())
