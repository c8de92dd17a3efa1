"""What an object's edges by related objects still miss: bounded counts of its related objects by state."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Model, QuerySet

from stator.rows.meta import graph_of
from stator.rows.watches import Watch, watches_of
from stator.texts import COUNTED

# Related objects are counted up to this number, by an index; unfinished ones, up to ``COUNTED``.
MAX_RELATED = 100_000


@dataclass(slots=True)
class Gathered:
    """An edge of the object's state: how many related objects it has, and how many of each state the edge waits for.

    ``missing`` stops at ``COUNTED`` and one more, ``total`` at ``MAX_RELATED`` and one more.
    ``oldest``: when the first of them entered each state.
    ``key``: of the related object, if the relation leads to one at most.
    """

    watch: Watch
    total: int
    missing: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, datetime] = field(default_factory=dict)
    key: Any = None

    def is_final(self, state: str) -> bool:
        """Return whether related objects stay in a state."""
        known = graph_of(self.watch.other).states.get(state)
        return known is not None and known.terminal


def gather_related(model: type[Model], pk: object, state: str, using: str) -> list[Gathered]:
    """Return what each edge by related objects of the object's state misses, in two statements for each."""
    return [_gathered(watch, pk, using) for watch in watches_of(model) if watch.state.name == state]


def _gathered(watch: Watch, pk: object, using: str) -> Gathered:
    related = watch.related_to_one(using, pk)
    found = Gathered(watch, related.order_by().values("pk")[: MAX_RELATED + 1].count())
    missing = related.exclude(state__in=watch.condition.in_).order_by().values_list("state", "state_changed")
    for state, changed in missing[: COUNTED + 1]:
        found.missing[state] += 1
        found.oldest[state] = min(changed, found.oldest.get(state, changed))
    if watch.to_one:
        rows: QuerySet[Model, Any] = QuerySet(watch.model, using=using).filter(pk=pk)
        found.key = rows.values_list(f"{watch.name}__pk", flat=True).first()
    return found
