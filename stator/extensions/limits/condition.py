"""How many more rows may be claimed in a state with limited concurrency."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from stator.db.conditions import Condition
from stator.extensions.limits.models import Limit
from stator.graph import State

if TYPE_CHECKING:
    from stator.db.interface import Operations


class LimitedStates(Condition):
    """A state with limited concurrency is claimed by itself, and by one worker at a time."""

    @classmethod
    def bind(cls, store: "Operations", earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if any(state.concurrency for state in store.graph.automatic_states) else None

    def gates(self, states: list[State]) -> bool:
        return bool(states[0].concurrency)

    def room(self, states: list[State], limit: int, *, sure: bool) -> int:
        store, [state] = self._store, states
        if sure:
            Limit.lock(store.alias, store.label, state.name)
        running = store.undivided.filter(state_claim__isnull=False, **store.state_field.at(state)).count()
        return max(0, min(limit, (state.concurrency or 0) - running))
