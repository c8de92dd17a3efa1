"""Form fields that read or refuse anything that people paste or put into an address."""

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import DataError, models
from django.db.models import Model
from django.forms.fields import InvalidJSONInput

from stator.graph.backoff import MAX_SECONDS
from stator.rows.keys import key_of
from stator.texts import Json, json_problem

# Far deeper than people write; everything can read and write JSON of this depth.
DEEPEST = 200


def check_kept(value: object) -> None:
    """Refuse values that databases cannot store as JSON or that a page cannot show again."""
    if problem := json_problem(value, DEEPEST):
        raise ValidationError(f"This cannot be stored as JSON: {problem}.")


class JSONField(forms.JSONField):
    """Django's field for pasted text; invalid text is shown again as it was typed.

    No text, or null, is the default of a model's field that has a function for it, such as an empty list.
    """

    default_validators = [check_kept]

    def to_python(self, value: object) -> Json:
        """Return the value; raise an error of one line also for JSON that is too deep or has too long a number."""
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:
            raise ValidationError(self.error_messages["invalid"], "invalid", {"value": "this"}) from error

    def clean(self, value: object) -> object:
        """Return the value, or the default in place of none."""
        cleaned = super().clean(value)
        return self.initial() if cleaned is None and callable(self.initial) else cleaned

    def bound_data(self, data: object, initial: object) -> object:
        """Return the typed text."""
        return initial if data is None or self.disabled else InvalidJSONInput(data)

    def prepare_value(self, value: object) -> str:
        """Return the text, none for null; half of a surrogate pair, which no page can have, is escaped as in JSON."""
        if value is None:
            return ""
        return super().prepare_value(value).encode(errors="backslashreplace").decode()


# For ``formfield_overrides``.
OF_JSON: dict[type[models.Field], dict[str, object]] = {models.JSONField: {"form_class": JSONField}}

SPAN_HELP = "Such as 30 m, 2 h or 1 d; a number alone is in seconds."
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([\d.]+)\s*([a-z]*)")


class SpanField(forms.CharField):
    """A duration as people write it, such as ``30 m`` or ``1 d 4 h``, in seconds; None if it is empty."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=50, **kwargs)

    def clean(self, value: object) -> float | None:
        """Return the seconds."""
        text = str(super().clean(value)).strip().lower()
        if not text:
            return None
        parts = _PART.findall(text)
        try:
            seconds = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
        except (ValueError, KeyError):
            seconds = 0.0
        if _PART.sub("", text).strip() or not 0 < seconds <= MAX_SECONDS:
            raise ValidationError("Give a duration above 0 and not too long, such as 30 m or 2 h.")
        return seconds


def can_be_key(model: type[Model], text: str) -> bool:
    """Return whether a row can have this key."""
    try:
        key_of(model, text)
    except (ValidationError, ValueError):
        return False
    return True


def prefilled(fields: Mapping[str, forms.Field], given: Mapping[str, object]) -> dict[str, object]:
    """Return the initial values of a form that its fields can read from the given texts; leave out other texts.

    Django passes an address's texts to forms unchanged, and some fields cannot show a text that they cannot read.
    """
    initial = {}
    for name in fields.keys() & given.keys():
        try:
            initial[name] = _read(fields[name], given[name])
        except (ValidationError, ValueError, TypeError, OverflowError, RecursionError, DataError):
            continue
    return initial


def _read(field: forms.Field, given: object) -> object:
    if "\0" in str(given) or field.widget.needs_multipart_form:
        raise ValueError("no field can begin with a NUL character or with a file")
    if isinstance(field, forms.SplitDateTimeField):
        value = forms.DateTimeField().clean(given)
        # Near the ends of the calendar a time has no local time to show.
        field.widget.decompress(value)
        return value
    return field.clean(given)
