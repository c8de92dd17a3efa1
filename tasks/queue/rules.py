"""The rules of a queue, and their validation."""

from typing import Any

from django.core.validators import RegexValidator

from stator.graph.backoff import MAX_SECONDS
from stator.models import field_of
from tasks.actions.registry import MAX_TRIES
from tasks.messages import METADATA_NAME_RULE, is_metadata_name
from tasks.queue import actions as queue_actions
from tasks.rows.queues import QueueRow

# Names appear in URLs, logs and terminals.
NAME = RegexValidator(
    r"^\w[\w.:-]{0,99}\Z", "Up to 100 letters, digits, and _ . : - only, beginning with a letter, a digit or _."
)

NAME_LENGTH = 100

# The largest values that every database stores.
MAX_VALUES = {"max_attempts": MAX_TRIES, "worker_retries": 32_767}

# Durations in seconds, with the least value of each.
SECONDS = {"lease": 0.05, "timeout": 0.05, "invisible_for": 0.0, "retention": 0.0, "failed_retention": 0.0}


def queue_name_problem(name: object) -> str:
    """Return why a queue cannot have this name, as one line; empty if it can: it is stored, and part of addresses."""
    if not isinstance(name, str):
        return f"the name of a queue must be a text, not {name!r:.80}"
    if not name:
        return "the name of a queue is empty; give it 1 to 100 characters"
    if len(name) > NAME_LENGTH:
        return f"the name of queue {name[:20]!r}... has {len(name):,} characters; the most is {NAME_LENGTH}"
    if "\0" in name:
        return f"the name of queue {name!r} has a NUL character, which databases cannot store"
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        return f"the name of queue {name!r} has half of a surrogate pair, which is not a character"
    if "/" in name or name in (".", ".."):
        return f"queue {name!r} would have no address over HTTP; use a name without /, and not . or .."
    return ""


def problems(queue: QueueRow) -> dict[str, str]:
    """Return one sentence for each rule that no task could follow."""
    found = {}
    for name, least in SECONDS.items():
        value = _number(queue, name)
        if value is not None and not least <= value <= MAX_SECONDS:
            found[name] = f"must be a number of seconds from {least:g} to {MAX_SECONDS:.0f}, or empty"
    for name, most in MAX_VALUES.items():
        least = 1 if name == "max_attempts" else 0
        if (count := _number(queue, name)) is not None and not least <= count <= most:
            found[name] = f"must be a whole number from {least} to {most:,}"
    if "http_actions" in queue.__dict__ and (wrong := queue_actions.problem(queue.http_actions)):
        found["http_actions"] = wrong
    # The key of an existing queue cannot be changed.
    if queue._state.adding and queue.exclusive_key and not is_metadata_name(queue.exclusive_key):
        found["exclusive_key"] = f"it is a name in metadata, so it {METADATA_NAME_RULE}"
    return found


def _number(queue: QueueRow, name: str) -> Any:
    # A deferred field is not saved, so it is not checked.
    return field_of(type(queue), name).to_python(queue.__dict__.get(name))
