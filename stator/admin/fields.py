"""Fields of forms for what people paste: whatever that is, it is read or refused."""

import re
from math import isfinite
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput

# Far more than anybody writes; reading and writing what is nested so is still no trouble anywhere.
DEEPEST = 200
_UNKEPT = re.compile("[\x00\ud800-\udfff]")


def check_kept(value: Any) -> None:
    """Refuse what databases do not keep as JSON, or what no page can show again."""
    if not _is_kept(value, DEEPEST):
        raise ValidationError(
            "This cannot be kept as JSON: it has NaN or Infinity, a NUL character, half of a surrogate pair, "
            f"or is nested deeper than {DEEPEST} levels."
        )


class JSONField(forms.JSONField):
    """As Django's, for what people paste: whatever that is, it is shown again as it was typed."""

    default_validators = [check_kept]

    def to_python(self, value: Any) -> Any:
        """The value; an error of one line also for what is too deep, or a number too long, to be read."""
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:
            raise ValidationError(self.error_messages["invalid"], "invalid", {"value": "this"}) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed."""
        return initial if data is None or self.disabled else InvalidJSONInput(data)

    def prepare_value(self, value: Any) -> Any:
        """The text; half of a surrogate pair, which no page can have, as JSON spells it."""
        return super().prepare_value(value).encode(errors="backslashreplace").decode()


def _is_kept(value: Any, levels: int) -> bool:
    if isinstance(value, dict | list):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return levels > 0 and all(_is_kept(item, levels - 1) for item in items)
    return isfinite(value) if isinstance(value, float) else not (isinstance(value, str) and _UNKEPT.search(value))
