"""Messages of the checks, by their codes."""

from django.core import checks


def message(code: str, text: str, hint: str, obj: object = None) -> checks.CheckMessage:
    """Return a message; a code begins with E for an error, with W for a warning."""
    kind = checks.Error if code.startswith("E") else checks.Warning
    return kind(text, hint=hint, obj=obj, id=f"stator.{code}")
