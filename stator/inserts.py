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
    values = [instance.__dict__ for instance in instances]
    for each in values:
        each.update(_CLAIM)
    left = _left_to_defaults(model)
    if left:
        left = left - _set(model, values)
    return [field for field in fields if field.name not in left]


@lru_cache(maxsize=1024)
def _left_to_defaults(model: Any) -> frozenset[str]:
    # A table that Django does not make may lack them.
    return frozenset({"state_changed", *BEGUN}) if model._meta.managed else frozenset()


def _set(model: Any, values: list[dict[str, Any]]) -> set[str]:
    """The columns in which some instance has something else than the default, or will get it before it is sent."""
    begun = BEGUN.items()
    # What is not there yet is deferred, and will be read when it is sent.
    found = {
        name for each in values if not begun <= each.items() for name, value in begun if each.get(name, each) != value
    }
    if not all(isinstance(each.get("state_changed"), DatabaseDefault) for each in values):
        found.add("state_changed")
    states = model.state_graph.states
    if not all(name in states and ready_at_once(states[name]) for name in {str(each.get("state")) for each in values}):
        found |= {"state_ready", "state_next_attempt"}
    return found
