"""The rows that a function of the model lets a worker claim (``claimable`` of ``StatorMeta``)."""

from collections.abc import Sequence
from typing import Any, Self

from django.db.models import Q

from stator.db.conditions import CLAIM, Condition


class Ruled(Condition):
    """Rows that the model does not let this worker claim are left alone."""

    of_processes = True

    @classmethod
    def bind(cls, store: Any, earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if store.hooks.claimable else None

    def rows(self, deed: str) -> Q | None:
        store = self._store
        return store.hooks.claimable(store.worker_id, self.held_back) if deed == CLAIM else None
