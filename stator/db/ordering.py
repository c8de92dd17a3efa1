"""The order of ready rows: by priority, now and then by age, and in turns by value if ``fair_by`` is set.

Conditions may withhold rows at their turn, for instance rows that wait for others; the remaining rows are claimed.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from math import ceil

from django.db.models import F, Model, QuerySet

from stator.db.interface import Operations
from stator.db.transactions import LOCKED_AT_ONCE
from stator.db.values import Pk
from stator.graph import State
from stator.rows.claimable import Crashes
from stator.rows.indexes import line_of, place_in_line

# Every tenth claim of a worker ignores priority and takes the oldest rows, so low-priority rows cannot starve.
AGEING = 10

# How many values one round of a claim asks for rows; the next round begins after them.
MAX_VALUES = 100

# A claim of one statement asks for this many more values than it takes, because the rows of some values may be locked.
SPARE_VALUES = 10

# While claims find enough rows behind the last one, a claim returns to the head of the line after this many seconds. It
# returns later if claims from the head would otherwise take more than this part of the time.
HEAD_EVERY = 0.25
HEAD_PART = 0.1

# When a claim from the head of the line counts as slowed by dead index entries that cannot be removed: it takes more
# than this many times as long as a claim from further behind, and more than this many seconds.
STRAINED, STRAINED_FROM = 3.0, 0.05

# Rounds of one claim of a model with rows that are withheld, before the next claim goes on.
ROUNDS = 10


class Turn:
    """State kept between claims in the same states: their number, and where the last one ended.

    ``by_age``: whether the claim takes the rows that have waited longest.
    ``last``: its last value, if values take turns.
    ``strained``: whether an old snapshot fills the indexes with dead entries.
    ``place``: its place in a line by age. Claimed rows leave the index, but their entries stay while any older snapshot
    is open. A claim from the head of the line would walk over these entries again. So if a claim found as many rows as
    it wanted, the next claim begins behind the time and key of its last row. Rows that arrive before that place wait
    for the next claim from the head.
    """

    __slots__ = ("by_age", "claims", "head_took", "last", "place", "strained", "took", "wait_until")

    def __init__(self) -> None:
        self.claims = 0
        self.by_age, self.strained = True, False
        self.last: object = None
        self.place: tuple[datetime, object] | None = None
        self.wait_until = self.head_took = self.took = 0.0

    def begin(self, now: float) -> tuple[datetime, object] | None:
        """Return the place in the line to begin behind at the monotonic time ``now``; None is its head."""
        if now >= self.wait_until:
            self.place = None
        return self.place

    def end(self, place: tuple[datetime, object] | None, began: float, now: float) -> None:
        """Note where the claim ended if it found as many rows as it wanted, else None."""
        if self.place is None:
            self.head_took = now - began
            self.wait_until = now + max(HEAD_EVERY, self.head_took / HEAD_PART)
        else:
            self.took = now - began
        self.place = place
        self.strained = self.head_took > STRAINED_FROM and self.head_took > STRAINED * self.took > 0


class Lines:
    """The order of one worker's claims on the ready rows of a model."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._turns: dict[tuple[str, ...], Turn] = defaultdict(Turn)

    def next(self, states: list[State]) -> Turn:
        """Count a claim in these states and return their turn."""
        turn = self._turns[tuple(state.name for state in states)]
        turn.claims += 1
        turn.by_age = turn.claims % AGEING == 0
        return turn

    def pick(self, rows: QuerySet[Model], states: list[State], limit: int, crashes: Crashes) -> list[Pk]:
        """Lock up to ``limit`` claimable rows and return their keys; rows that lost a lease go by age alone."""
        lock = self._operations.lock
        rows = rows.filter(self._operations.crashed(crashes))
        if crashes is not Crashes.NONE:
            return lock(rows.order_by(place_in_line(), "pk"), limit)
        turn = self.next(states)
        rows = rows.order_by(*line_of(self._operations.model, by_age=turn.by_age))
        fair_by = self._operations.fair_by
        return self._share(rows, fair_by, turn, limit) if fair_by else lock(rows, limit, in_order=True)

    def _share(self, rows: QuerySet[Model], fair_by: str, turn: Turn, limit: int) -> list[Pk]:
        """Pick an equal number of rows of each value, and fill up from values that have more."""
        picked: list[Pk] = []
        spent: list[object] = []
        while left := limit - len(picked):
            # A value that gave fewer rows than asked for has no more, or other transactions have locked them.
            others = rows.exclude(pk__in=picked).exclude(**{f"{fair_by}__in": spent})
            values = list(_in_turn(others, fair_by, turn.last, min(left, MAX_VALUES)))
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


def _in_turn(rows: QuerySet[Model], fair_by: str, last: object, most: int) -> Iterator[object]:
    """Yield up to ``most`` values that have rows: those after ``last``, then from the smallest."""
    if last is None:
        yield from _distinct(rows, fair_by, most)
        return
    for part in ("gt", "lte"):
        for value in _distinct(rows.filter(**{f"{fair_by}__{part}": last}), fair_by, most):
            most -= 1
            yield value


def _distinct(rows: QuerySet[Model], fair_by: str, most: int) -> Iterator[object]:
    # One index step for each value; DISTINCT would read all rows of a value to get past it.
    values = rows.order_by(F(fair_by), *rows.query.order_by).values_list(fair_by, flat=True)
    value = values.first() if most > 0 else None
    while value is not None:
        yield value
        most -= 1
        value = values.filter(**{f"{fair_by}__gt": value}).first() if most else None


def pick(operations: Operations, line: Lines, states: list[State], limit: int, crashes: Crashes) -> list[Pk]:
    """Lock up to ``limit`` claimable rows and return their primary keys. Call it in a transaction."""
    rows = operations.open_rows(states)
    conditions = operations.conditions
    if not conditions.withhold:
        return line.pick(rows, states, limit, crashes)
    picked: list[Pk] = []
    wanted = limit
    for _ in range(ROUNDS):
        found = line.pick(rows.exclude(pk__in=picked), states, wanted, crashes)
        held = conditions.withheld(found)
        picked += [pk for pk in found if pk not in held]
        if not held or len(picked) >= limit:
            break
        # If some are withheld, many more may be: ask for many at once. Rows found free beyond the limit stay ready.
        wanted = LOCKED_AT_ONCE
    return picked[:limit]
