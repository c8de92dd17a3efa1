"""The order of ready rows: by priority, now and then by age, and in turns by value if ``fair_by`` is set."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from math import ceil

from django.db.models import F, Model, QuerySet

from stator.db.claim import Crashes
from stator.db.interface import Operations
from stator.db.values import Pk
from stator.graph import State
from stator.rows.indexes import line_of, place_in_line

# One of so many claims of a worker ignores priority and takes the oldest rows, so low-priority rows cannot starve.
AGEING = 10

# How many values one round of a claim asks for rows; the next round begins after them.
MOST_VALUES = 100

# A claim of one statement asks for so many more values than it takes, because rows of some may be locked.
SPARE_VALUES = 10

# While claims find enough rows behind the last one, a claim returns to the head of the line after so many seconds, or
# later if claims from the head would otherwise take more than this part of the time.
HEAD_EVERY = 0.25
HEAD_PART = 0.1

# A claim from the head of the line meets dead index entries that cannot be removed if it takes so many times as long as
# one from further behind, and so many seconds.
STRAINED, STRAINED_FROM = 3.0, 0.05


class Turn:
    """State kept between claims in the same states: their number, and where the last one ended.

    ``last``: its last value, if values take turns. ``place``: its place in a line by age. Claimed rows leave the index,
    but their entries stay while anybody has an older snapshot open. A claim from the head of the line would walk over
    them again. So a claim that found as many rows as it wanted tells the next one where to begin: behind the time and
    key of its last row. Rows that arrive before that place wait for the next claim from the head.
    """

    __slots__ = ("claims", "head_took", "last", "place", "took", "wait_until")

    def __init__(self) -> None:
        self.claims = 0
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

    @property
    def strained(self) -> bool:
        """Whether an old snapshot fills the indexes with dead entries."""
        return self.head_took > STRAINED_FROM and self.head_took > STRAINED * self.took > 0

    @property
    def by_age(self) -> bool:
        """Whether this claim takes the rows that have waited longest."""
        return self.claims % AGEING == 0


class Lines:
    """The order in which one worker claims the ready rows of a model."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._turns: dict[tuple[str, ...], Turn] = defaultdict(Turn)

    def next(self, states: list[State]) -> Turn:
        """Count a claim in these states and return their turn."""
        turn = self._turns[tuple(state.name for state in states)]
        turn.claims += 1
        return turn

    def pick(self, rows: QuerySet[Model], states: list[State], limit: int, crashes: Crashes) -> list[Pk]:
        """Lock up to ``limit`` claimable rows and return their keys; rows that lost a lease go by age alone."""
        lock = self._operations.lock
        rows = rows.filter(self._operations.crashed(crashes))
        if crashes is not Crashes.NONE:
            return lock(rows.order_by(place_in_line(), "pk"), limit)
        turn = self.next(states)
        rows = rows.order_by(*line_of(self._operations.model, by_age=turn.by_age))
        fair_by = self._operations.options.fair_by
        return self._share(rows, fair_by, turn, limit) if fair_by else lock(rows, limit, in_order=True)

    def _share(self, rows: QuerySet[Model], fair_by: str, turn: Turn, limit: int) -> list[Pk]:
        """Pick an equal number of rows of each value, and what is left over from those that have more."""
        picked: list[Pk] = []
        spent: list[object] = []
        while left := limit - len(picked):
            # A value that gave fewer rows than asked for has no more, or others have locked them.
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
