"""What conditions of edges without a handler mean for rows."""

from collections.abc import Callable
from typing import Any

from django.db.models import Model, Q, QuerySet

from stator.graph.conditions import FollowedCondition
from stator.graph.states import State

Meaning = Callable[[QuerySet[Model], State, Any], Q]

_MEANINGS: dict[type, Meaning] = {}


def add_edge_condition(kind: type[FollowedCondition], meaning: Meaning) -> None:
    """Add what a kind of condition means: a filter for some rows, given the state that has the edge."""
    _MEANINGS[kind] = meaning


def condition_of(among: QuerySet[Model], state: State, condition: object) -> Q:
    """Return the condition of an edge without a handler as a filter for the objects ``among``."""
    meaning = _MEANINGS.get(type(condition))
    return meaning(among, state, condition) if meaning else Q(condition)


def reason_of(condition: object) -> str:
    """Return what the history says of a move by a condition."""
    return str(condition) if isinstance(condition, FollowedCondition) else "condition met"
