"""What follows when rows enter a state, or leave one, as one of the effects of a record."""

from collections.abc import Hashable
from typing import Self

from stator.db.effects import AFTER, Act, Done, Effect, Store
from stator.rows.followers import moved


class FollowedMoves(Effect):
    """What followers do after the moves of claimed rows, without those that an effect of their extension does."""

    follows = True

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models whose moves have such followers."""
        return cls(store) if store.operations.followed or store.operations.exits else None

    def wants(self, act: Act) -> Hashable:
        """Return whether entering the state, or leaving the other one, is followed."""
        source, to = act.edge
        is_left = source in self._operations.exits and act.moved
        return AFTER if act.claims and (is_left or to in self._operations.followed) else None

    def write(self, done: Done) -> None:
        """Do what follows the moves, which may raise :class:`~stator.rows.followers.WaiterHeld`."""
        act, operations = done.act, self._operations
        moved(operations.model, operations.alias, act.edge[1], done.accepted.keys(), act.claims, wait=done.wait)
