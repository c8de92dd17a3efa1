"""Inserts that leave the framework's columns to their defaults in the database."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault

from stator.rows.columns import COUNTS, ready_at_once
from stator.rows.meta import graph_of

# Reset even if the instance is a copy of a row with attempts.
UNCOUNTED: dict[str, object] = dict.fromkeys(COUNTS, 0)

# The values of a new row. Django would convert, send and read back each of these.
BEGUN: dict[str, object] = {
    "state_ready": True,
    "state_attempted": None,
    "state_locked_until": None,
    "state_next_attempt": None,
    "state_claim": None,
    **UNCOUNTED,
}

# A new row has no claim, whatever the instance says.
_CLAIM = {"state_claim": None, "state_locked_until": None}


def fields_sent(model: type[Model], instances: Sequence[Model], fields: Sequence[Field]) -> list[Field]:
    """Return the fields that an INSERT of these instances must name."""
    left, ready = _left_to_defaults(model), _ready_at_once(model)
    for instance in instances:
        values = instance.__dict__
        values.update(_CLAIM)
        # Nearly always all values are the defaults.
        if left and not (
            BEGUN.items() <= values.items()
            and isinstance(values.get("state_changed"), DatabaseDefault)
            and str(values.get("state")) in ready
        ):
            left = left - _set(values, ready)
    return [field for field in fields if field.name not in left]


@lru_cache(maxsize=1024)
def _left_to_defaults(model: type[Model]) -> frozenset[str]:
    # A table that Django does not create may lack the defaults.
    return frozenset({"state_changed", *BEGUN}) if model._meta.managed else frozenset()


@lru_cache(maxsize=1024)
def _ready_at_once(model: type[Model]) -> frozenset[str]:
    return frozenset(state.name for state in graph_of(model).states.values() if ready_at_once(state))


def _set(values: Mapping[str, object], ready: frozenset[str]) -> set[str]:
    """Return the columns with other values than the default, or that will get one before the insert."""
    # A missing value is deferred and will be read when it is sent.
    found = {name for name, value in BEGUN.items() if values.get(name, values) != value}
    if not isinstance(values.get("state_changed"), DatabaseDefault):
        found.add("state_changed")
    if "state_next_attempt" in found:
        # The row starts later, so it is not ready.
        found.add("state_ready")
    if str(values.get("state")) not in ready:
        found |= {"state_ready", "state_next_attempt"}
    return found
