"""What a queue may say for tasks that say nothing of their own."""

from typing import Any

from tasks.conf import LONGEST
from tasks.messages import METADATA_NAME_TOLD, is_metadata_name

# Lengths of time, with the least that each may be.
SECONDS = {"lease": 0.05, "timeout": 0.05, "invisible_for": 0.0, "retention": 0.0}


def problems(queue: Any) -> dict[str, str]:
    """For each rule that no task could have, one sentence."""
    found = {}
    for name, least in SECONDS.items():
        value = _number(queue, name)
        if value is not None and not least <= value <= LONGEST:
            found[name] = f"must be a number of seconds from {least:g} to {LONGEST:.0f}, or empty"
    attempts = _number(queue, "max_attempts")
    if attempts is not None and attempts < 1:
        found["max_attempts"] = "at least one attempt, or empty"
    # Of one that is there it cannot be changed.
    if queue._state.adding and queue.exclusive_key and not is_metadata_name(queue.exclusive_key):
        found["exclusive_key"] = f"it is a name in metadata, so it {METADATA_NAME_TOLD}"
    return found


def _number(queue: Any, name: str) -> Any:
    # A deferred one stays as it is.
    return queue._meta.get_field(name).to_python(queue.__dict__.get(name))
