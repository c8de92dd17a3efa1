"""The rows that a function of the model lets a worker claim (``claimable`` of ``StatorMeta``)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self, cast

from django.db.models import Q

from stator.db.conditions import CLAIM, Condition
from stator.rows.meta import function_of

if TYPE_CHECKING:
    from stator.db.interface import Operations


class Ruled(Condition):
    """Rows that the model does not let this worker claim are left alone."""

    of_processes = True

    def __init__(self, store: "Operations", earlier: Sequence[Condition]) -> None:
        super().__init__(store, earlier)
        self._claimable = cast("Callable[[str, Q], Q]", function_of(store.options.claimable))

    @classmethod
    def bind(cls, store: "Operations", earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if store.options.claimable else None

    def rows(self, deed: str) -> Q | None:
        return self._claimable(self._store.worker_id, self.held_back) if deed == CLAIM else None
