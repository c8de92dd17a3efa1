"""What actions return, as it is kept."""

import json
from typing import Any

from tasks.conf import Settings
from tasks.exceptions import PublishRefused
from tasks.failures import NotStorable
from tasks.messages import json_text


def storable(value: Any, what: str, settings: Settings) -> Any:
    """The value as it will be read again: with lists for tuples and texts for keys; ``NotStorable`` where it cannot."""
    if value is None:
        return None
    try:
        text = json_text(what, value, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
    except PublishRefused as refused:
        raise NotStorable(str(refused)) from None
    return json.loads(text)
