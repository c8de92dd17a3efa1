"""The results of actions, converted to their stored form."""

from tasks.conf import TaskSettings
from tasks.exceptions import TaskError
from tasks.failures import NotStorable
from tasks.messages import Json, json_text


def storable(value: Json, settings: TaskSettings) -> str:
    """Return a result as JSON text; raise ``NotStorable`` if that is impossible."""
    try:
        return json_text("the result", value, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
    except TaskError as refused:
        raise NotStorable(str(refused)) from None
