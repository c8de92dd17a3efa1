"""What an insert leaves to the database: the framework's columns that begin as their defaults say."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db.models.expressions import DatabaseDefault

from stator.columns import COUNTS, ready_at_once

# However often the row was attempted of which an instance is a copy.
UNCOUNTED: dict[str, Any] = dict.fromkeys(COUNTS, 0)

# What a new row has in them. Of each of these Django would convert, send and read back a value.
BEGUN: dict[str, Any] = {
    "state_ready": True,
    "state_attempted": None,
    "state_locked_until": None,
    "state_next_attempt": None,
    "state_claim": None,
    **UNCOUNTED,
}

# Whatever an instance says of a claim, a new row has none.
_CLAIM = {"state_claim": None, "state_locked_until": None}


def fields_sent(model: Any, instances: Sequence[Any], fields: Sequence[Any]) -> list[Any]:
    """The fields that an INSERT of these instances must name."""
    left, ready = _left_to_defaults(model), _ready_at_once(model)
    for instance in instances:
        values = instance.__dict__
        values.update(_CLAIM)
        # Nearly always all is as it begins.
        if left and not (
            BEGUN.items() <= values.items()
            and isinstance(values.get("state_changed"), DatabaseDefault)
            and str(values.get("state")) in ready
        ):
            left = left - _set(values, ready)
    return [field for field in fields if field.name not in left]


@lru_cache(maxsize=1024)
def _left_to_defaults(model: Any) -> frozenset[str]:
    # A table that Django does not make may lack them.
    return frozenset({"state_changed", *BEGUN}) if model._meta.managed else frozenset()


@lru_cache(maxsize=1024)
def _ready_at_once(model: Any) -> frozenset[str]:
    return frozenset(state.name for state in model.state_graph.states.values() if ready_at_once(state))


def _set(values: dict[str, Any], ready: frozenset[str]) -> set[str]:
    """The columns that have something else than the default, or will get it before they are sent."""
    # What is not there yet is deferred, and will be read when it is sent.
    found = {name for name, value in BEGUN.items() if values.get(name, values) != value}
    if not isinstance(values.get("state_changed"), DatabaseDefault):
        found.add("state_changed")
    if "state_next_attempt" in found:
        # It is to start later, so it is not ready.
        found.add("state_ready")
    if str(values.get("state")) not in ready:
        found |= {"state_ready", "state_next_attempt"}
    return found
