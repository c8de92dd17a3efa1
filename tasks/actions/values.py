"""The results of actions, converted to their stored form."""

from stator.texts import json_text
from tasks.conf import TaskSettings
from tasks.failures import NotStorable


def storable(value: object, settings: TaskSettings) -> str:
    """Return a result as JSON text; raise ``NotStorable`` if that is impossible."""
    try:
        return json_text("the result", value, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
    except ValueError as refused:
        raise NotStorable(str(refused)) from None
