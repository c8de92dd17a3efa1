"""The results of actions, converted to their stored form."""

import json
from typing import Any

from tasks.conf import TaskSettings
from tasks.exceptions import TaskError
from tasks.failures import NotStorable
from tasks.messages import Json, json_text


def storable(value: Json, settings: TaskSettings) -> Any:
    """Return a result as JSON has it: lists for tuples, keys as text; raise ``NotStorable`` if that is impossible."""
    if value is None:
        return None
    try:
        text = json_text("the result", value, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
    except TaskError as refused:
        raise NotStorable(str(refused)) from None
    return json.loads(text)
