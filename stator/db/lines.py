"""Whose turn it is among ready rows: by priority, now and then by age, and value by value where they share."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from math import ceil
from typing import Any

from django.db.models import F, QuerySet

from stator.db.claim import Crashes
from stator.graph import State
from stator.indexes import line_of, place_in_line

# Of so many claims of a worker one goes by age, whatever the priorities: that is the bound for how long a row that
# nobody thinks urgent is passed over.
AGEING = 10

# So many values are asked for their rows in one round of a claim; the next begins after them.
MOST_VALUES = 100

# Where one statement is a whole claim it asks for some more values than it takes: rows of others may be locked.
SPARE_VALUES = 10

# While claims find enough where the last one ended, one goes back to the head of the line after so many seconds, and
# no more often than that it takes this part of the time.
HEAD_EVERY = 0.25
HEAD_PART = 0.1

# Where a claim from the head of the line takes so many times as long as one behind its place, and so many seconds, dead
# entries are in its way that cannot be removed.
STRAINED, STRAINED_FROM = 3.0, 0.05


class Turn:
    """What is remembered from one claim in some states to the next: their number, and what came last.

    ``last``: its value, where values share. ``place``: its place in a line by age. Rows that are claimed leave the
    index, but their entries stay in it while anybody has an older snapshot open; a claim from the head of the line
    would walk over all of them again. So one that found as many as it wanted tells the next where to begin: behind the
    time and the key of its last. What comes to stand before that place waits for the next claim from the head.
    """

    __slots__ = ("claims", "head_took", "last", "place", "took", "wait_until")

    def __init__(self) -> None:
        self.claims = 0
        self.last: Any = None
        self.place: tuple[datetime, Any] | None = None
        self.wait_until = self.head_took = self.took = 0.0

    def begin(self, now: float) -> tuple[datetime, Any] | None:
        """The place in the line to begin behind, by the monotonic time; None is its head."""
        if now >= self.wait_until:
            self.place = None
        return self.place

    def end(self, place: tuple[datetime, Any] | None, began: float, now: float) -> None:
        """Note the place of the last row of a claim that found as many as it wanted, else None."""
        if self.place is None:
            self.head_took = now - began
            self.wait_until = now + max(HEAD_EVERY, self.head_took / HEAD_PART)
        else:
            self.took = now - began
        self.place = place

    @property
    def strained(self) -> bool:
        """Whether somebody holds an old snapshot open, so that indexes are full of dead entries."""
        return self.head_took > STRAINED_FROM and self.head_took > STRAINED * self.took > 0

    @property
    def by_age(self) -> bool:
        """Whether this claim takes the rows that have waited longest."""
        return self.claims % AGEING == 0


class Lines:
    """The lines in which the ready rows of a model wait, as one worker serves them."""

    def __init__(self, operations: Any) -> None:
        self._operations = operations
        self._turns: dict[tuple[str, ...], Turn] = defaultdict(Turn)

    def next(self, states: list[State]) -> Turn:
        """Count a claim in these states, and tell whose turn it is."""
        turn = self._turns[tuple(state.name for state in states)]
        turn.claims += 1
        return turn

    def pick(self, rows: QuerySet[Any], states: list[State], limit: int, crashes: Crashes) -> list[Any]:
        """Primary keys of up to ``limit`` claimable rows, locked; those that lost a lease by age alone."""
        lock = self._operations.lock
        rows = rows.filter(self._operations.crashed(crashes))
        if crashes is not Crashes.NONE:
            return list(lock(rows.order_by(place_in_line(), "pk"), limit))
        turn = self.next(states)
        rows = rows.order_by(*line_of(self._operations.model, by_age=turn.by_age))
        fair_by = self._operations.options.fair_by
        return self._share(rows, fair_by, turn, limit) if fair_by else list(lock(rows, limit, in_order=True))

    def _share(self, rows: QuerySet[Any], fair_by: str, turn: Turn, limit: int) -> list[Any]:
        """Equal numbers of rows of each value, and what is left over for those that have more."""
        picked: list[Any] = []
        spent: list[Any] = []
        while left := limit - len(picked):
            # Of those that gave less than asked for nothing is left, or others have it locked.
            others = rows.exclude(pk__in=picked).exclude(**{f"{fair_by}__in": spent})
            values = list(_in_turn(others, fair_by, turn.last, min(left, MOST_VALUES)))
            if not values:
                break
            for value in values:
                share = min(ceil(left / len(values)), limit - len(picked))
                mine = others.filter(**{fair_by: value})
                came = self._operations.lock(mine, share, in_order=True) if share else []
                picked += came
                spent += [value] if len(came) < share else []
                turn.last = value if share else turn.last
        return picked


def _in_turn(rows: QuerySet[Any], fair_by: str, last: Any, most: int) -> Iterator[Any]:
    """Up to ``most`` values that have rows: those after ``last``, then from the smallest."""
    if last is None:
        yield from _distinct(rows, fair_by, most)
        return
    for part in ("gt", "lte"):
        for value in _distinct(rows.filter(**{f"{fair_by}__{part}": last}), fair_by, most):
            most -= 1
            yield value


def _distinct(rows: QuerySet[Any], fair_by: str, most: int) -> Iterator[Any]:
    # One step into the index for each: DISTINCT would read all rows of a value to get past it.
    values = rows.order_by(F(fair_by), *rows.query.order_by).values_list(fair_by, flat=True)
    value = values.first() if most > 0 else None
    while value is not None:
        yield value
        most -= 1
        value = values.filter(**{f"{fair_by}__gt": value}).first() if most else None
