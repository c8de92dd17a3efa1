"""What claims ask of rows that wait for other objects: a waiting row is parked when its turn comes."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Self

from django.db.models import Model, QuerySet

from stator.db.conditions import Condition
from stator.db.values import Pk
from stator.extensions.related.waits import Wait, parking, postponing, reopenable, waits_of

if TYPE_CHECKING:
    from stator.db.interface import Operations


class Parked(Condition):
    """Parked rows, also of a model that no longer waits for anything."""

    def to_watch(self) -> list[QuerySet[Model]]:
        return [reopenable(self._store)]


class WaitingForRelated(Condition):
    """The objects of a model wait for other objects."""

    @classmethod
    def bind(cls, store: "Operations", earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if waits_of(store.model) else None

    def withheld(self, pks: Collection[Pk]) -> set[Pk]:
        """Park the rows that wait for another object; return their keys."""
        store = self._store
        rows = store.rows.filter(pk__in=pks)
        waiting: set[Pk] = set()
        parked: set[Pk] = set()
        for wait in waits_of(store.model):
            by_awaited = _waiting(rows, wait)
            if not by_awaited:
                continue
            waiting.update(*by_awaited.values())
            # While it is locked, the awaited object has either moved visibly, or its move will find the row parked.
            held = store.keep(wait.unsettled(store.alias).filter(pk__in=list(by_awaited)))
            parked.update(*(by_awaited[pk] for pk in held))
        for held_up, changes in ((parked, parking()), (waiting - parked, postponing())):
            if held_up:
                store.rows.filter(pk__in=list(held_up)).update(**changes)
        return waiting


def _waiting(rows: QuerySet[Model], wait: Wait) -> dict[Pk, set[Pk]]:
    """Return, for each awaited object, the rows that wait for it."""
    by_awaited: dict[Pk, set[Pk]] = defaultdict(set)
    for pk, awaited in rows.filter(wait.holds(rows)).values_list("pk", wait.key):
        by_awaited[awaited].add(pk)
    return by_awaited
