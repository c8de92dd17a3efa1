"""Watermarks: where polls and claims begin in indexes while an old snapshot keeps the entries of rows that have left.

Such entries are at the front, since rows leave in their order. What lies before a watermark is looked at about once a
``POLL_INTERVAL``, so a row that appears there waits no longer than one of which no worker is notified.
"""

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from stator.conf import Settings
from stator.db.claims import Watermark
from stator.db.interface import Operations
from stator.db.probe import Work, look_before, new_watermark

# Seconds of a poll from which it counts as slowed by dead entries, and seconds for each of its models.
SLOW, SLOW_EACH = 0.01, 0.002

# The part of the time that looks may take if they are slow because dead index entries cannot be removed. Leases are
# still reaped as often as promised.
LOOK_PART = 0.2

# The same if a look asks several nodes, all of which it costs something.
LOOK_PART_OF_NODES = 0.04

# Takes a step for several models, together or one by one.
Together = Callable[[Callable[..., object]], None]


def rest_after(took: float, settings: Settings, part: float = LOOK_PART) -> float:
    """Return how many seconds a worker rests after a look that took so long, if looks may take a part of the time."""
    return min(took * (1 / part - 1), settings.REAP_INTERVAL)


class Watermarks:
    """The watermark of one scope. ``since``: its time; None while polls look at everything.

    ``saw_all``: the last poll has also looked at what lies before the watermark.
    """

    def __init__(self, settings: Settings) -> None:
        self.since: datetime | None = None
        self.saw_all = True
        self._settings = settings
        self._is_slow = False
        # The models whose claims have a watermark.
        self._marked = set[Operations]()
        # When what lies before the watermark is looked at again, and the leases among it.
        self._again = self._reap = 0.0

    def look(
        self,
        group: list[Operations],
        together: Together,
        look: Callable[..., object],
        looked: dict[Operations, Work],
        *,
        everything: bool,
    ) -> None:
        """Poll some models by ``look(watermark, *models)``, and look at what lies before if it is time.

        ``everything``: do so now, since there is nothing else to do meanwhile.
        """
        before: dict[Operations, Work] = {}
        began = time.monotonic()
        self.saw_all = everything or not self._is_slow or began >= self._again
        if self._is_slow and self.saw_all:
            before = self._look_before(group, together, began)
            began = time.monotonic()
        together(partial(look, self.since))
        looked.update({each: looked[each] | work for each, work in before.items() if each in looked})
        if self.since is None:
            self._is_slow = _counts_as_slow(group, time.monotonic() - began)
            self._again = began

    def _look_before(self, group: list[Operations], together: Together, began: float) -> dict[Operations, Work]:
        """Look at what lies before a new watermark, and set it; or do without a watermark if that is fast again."""
        before: dict[Operations, Work] = {}
        leases, since = began >= self._reap, new_watermark(group[0])
        together(partial(_look_before, before, since, leases))
        took = time.monotonic() - began
        if leases:
            self._reap = began + self._settings.REAP_INTERVAL
        self._again = began + max(self._settings.POLL_INTERVAL, rest_after(took, self._settings))
        self._is_slow = _counts_as_slow(group, 2 * took)
        self.since = since if self._is_slow else None
        # Models that are left out now lose theirs: nothing would be looked for before it.
        for operations in self._marked | before.keys():
            known = self.since and before.get(operations)
            operations.claims.lines.watermark = Watermark(since, known.ready) if known else None
        self._marked = {*before} if self.since else set()
        return before


def _counts_as_slow(group: list[Operations], took: float) -> bool:
    keeps = any(each.capabilities.keeps_dead_entries for each in group)
    return keeps and took > SLOW + SLOW_EACH * len(group)


def _look_before(before: dict[Operations, Work], since: datetime, leases: bool, *part: Operations) -> None:
    # What is on several nodes is looked at by a statement of its own, in all of its indexes.
    if here := [each for each in part if not each.division.spans]:
        before.update(look_before(since, *here, leases=leases))
