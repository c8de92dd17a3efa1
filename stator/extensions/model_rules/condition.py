"""The rows that the functions of a model let a worker claim and hold."""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, Self

from django.db.models import Q

from stator.db.conditions import CLAIM, Condition


class Ruled(Condition):
    """Rows that the model does not let this worker claim are not claimed, or no longer held."""

    of_processes = True

    @classmethod
    def bind(cls, store: Any, earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if store.hooks.claimable or store.hooks.holdable else None

    def rows(self, deed: str) -> Q | None:
        store = self._store
        if deed != CLAIM or not store.hooks.claimable:
            return None
        others = [rows for each in self._earlier if (rows := each.rows(deed)) is not None]
        open_rows: Q = store.hooks.claimable(store.worker_id, ~reduce(and_, others) if others else Q())
        return open_rows

    def holds(self) -> Q | None:
        store = self._store
        return store.hooks.holdable(store.worker_id, store.alias) if store.hooks.holdable else None
