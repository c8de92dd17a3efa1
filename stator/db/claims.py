"""Claims through the ORM: correct on every database. Rows are picked and locked first, then claimed.

Ready rows are picked by priority, now and then by age, and in turns by value if ``fair_by`` is set. Conditions may
withhold rows at their turn, for instance rows that wait for others; the remaining rows are claimed.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from math import ceil
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db import DatabaseError
from django.db.models import F, Model, Q, QuerySet

from stator.db.conditions import CLAIM
from stator.db.instances import load_rows
from stator.db.interface import Claim, Operations, new_token
from stator.db.retry import is_refusal
from stator.db.transactions import LOCKED_AT_ONCE
from stator.db.values import Instance, Pk
from stator.graph import State
from stator.graph.failures import bounded
from stator.rows import columns
from stator.rows.claimable import READY, Crashes
from stator.rows.indexes import line_of, place_in_line

logger = logging.getLogger("stator.worker")

Some = TypeVar("Some", bound=Claim)

# More rows than one claim takes.
MAX_CLAIMED = 100_000

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

# Seconds of a claim from the head of the line from which the next ones begin at the watermark, if polls have set one.
SLOW = 0.005

# How far a watermark is behind the clock of the database: rows committed within this time after their statement have
# arrived in order.
SLACK = timedelta(seconds=0.25)

# Rounds of one claim of a model with rows that are withheld, before the next claim goes on.
ROUNDS = 10


class Claims:
    """Claims on the rows of one model, in the order of one worker."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.lines = Lines(operations)

    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> list[Claim]:
        """Claim up to ``limit`` ready rows in the order of their turn; claim rows that lost leases by age alone.

        Only rows that meet the store's conditions are claimed.
        """
        operations, states = self._operations, self.running(states)
        if not states:
            return []
        token = token or new_token(operations.worker_id)
        claimed = time.monotonic()
        instances = self._claim(states, limit, token, crashes)
        by_value, own = operations.state_field.states, operations.state_field.attname
        return complete([Claim(operations, each, by_value[each.__dict__[own]], token, claimed) for each in instances])

    def running(self, states: list[State]) -> list[State]:
        """Return those of these states in which rows may be claimed."""
        conditions = self._operations.conditions
        conditions.read_initially(self._operations)
        return conditions.states(states)

    def _claim(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        """Claim rows together; if the database refuses that, claim the rows that it accepts, or none.

        A constraint of the model may forbid what another claim has just made impossible, so the retry picks rows anew.
        """
        operations = self._operations
        for claim_rows in (self._claim_rows, self._claim_pieces):
            try:
                if operations.conditions.gates(states):
                    return self._claim_gated(states, limit, token, crashes, claim_rows)
                return claim_rows(states, limit, token, crashes)
            except DatabaseError as error:
                if operations.connection.in_atomic_block or not is_refusal(error):
                    raise
                extra = {"model": operations.label, "error": bounded(str(error), 200)}
                logger.info("stator.claim_refused", extra=extra)
        return []

    def _claim_gated(
        self,
        states: list[State],
        limit: int,
        token: UUID,
        crashes: Crashes,
        claim_rows: Callable[..., list[Instance]],
    ) -> list[Instance]:
        """Claim as many rows as a condition has room for."""
        operations = self._operations
        with operations.transaction():
            room = operations.conditions.room(states, limit, sure=True)
            return claim_rows(states, room, token, crashes) if room else []

    def _claim_rows(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        operations = self._operations
        with operations.transaction():
            picked = pick(operations, self.lines, states, limit, crashes)
            return self._take(token, picked) if picked else []

    def _claim_pieces(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        operations = self._operations
        if (dividing := operations.conditions.dividing) is None:
            return []
        with operations.transaction():
            picked = pick(operations, self.lines, states, limit, crashes)
            pieces = dividing.pieces(CLAIM, picked, partial(self._take_piece, token), DatabaseError)
            return list(chain.from_iterable(pieces))

    def _take_piece(self, token: UUID, picked: list[Pk]) -> list[Instance]:
        with self._operations.transaction():
            return self._take(token, picked)

    def _take(self, token: UUID, picked: list[Pk]) -> list[Instance]:
        operations = self._operations
        changes = columns.claiming_due(operations.state_field, token, operations.lease_end())
        taken = {row.pk: row for row in take(operations.rows.filter(pk__in=picked), token, changes)}
        return [taken[pk] for pk in picked if pk in taken]

    def release_token(self, token: UUID) -> int:
        """Release the rows of a claim statement whose answer never arrived; return how many."""
        operations = self._operations
        if operations.division.spans:
            return operations.division.release_token(token)
        with operations.transaction():
            # "Held" is in the filter because there is an index of held rows.
            taken = operations.lock(operations.rows.filter(state_claim__isnull=False, state_claim=token), MAX_CLAIMED)
            return operations.rows.filter(pk__in=taken).update(**columns.releasing())


class Watermark(NamedTuple):
    """The time by which rows are ordered from which claims may begin: a poll has just looked at all rows before it.

    ``has_before``: it found ready rows there.
    """

    since: datetime
    has_before: bool


class Turn:
    """State kept between claims in the same states: their number, and where the last one ended.

    ``by_age``: whether the claim takes the rows that have waited longest.
    ``last``: its last value, if values take turns.
    ``strained``: whether an old snapshot fills the indexes with dead entries.
    ``place``: its place in a line by age. Claimed rows leave the index, but their entries stay while any older snapshot
    is open. A claim from the head of the line would walk over these entries again. So if a claim found as many rows as
    it wanted, the next claim begins behind the time and key of its last row. Rows that arrive before that place wait
    for the next claim from the head.
    ``watermark``: what the last poll says of the rows before a certain time. A claim without a place begins there, if
    the last claim from the head took all ready rows and was slow all the same, and no poll has found any since.
    """

    __slots__ = (
        "_at_head",
        "_known",
        "_since",
        "by_age",
        "claims",
        "head_took",
        "last",
        "place",
        "strained",
        "took",
        "wait_until",
        "watermark",
    )  # fmt: skip

    def __init__(self) -> None:
        self.claims = 0
        self.by_age, self.strained = True, False
        self.last: object = None
        self.place: tuple[datetime, object] | None = None
        self.wait_until = self.head_took = self.took = 0.0
        self.watermark: Watermark | None = None
        self._known: Watermark | None = None
        self._since: datetime | None = None
        self._at_head = True

    def since(self) -> datetime | None:
        """Return the time from which the line is claimed; None is its head."""
        if self._known is not self.watermark:
            self._known, self._since = self.watermark, None
            self._at_head = self._at_head or self.watermark is None or self.watermark.has_before
        if self._known is None or self._at_head:
            return None
        return self._since or self._known.since

    def learn(self, rows: list[Instance], limit: int, since: datetime | None, took: float) -> None:
        """Note what a claim brought that began at a time, or at the head, and how many seconds it took."""
        full = len(rows) >= limit
        if since is None:
            self._at_head = full or took < SLOW
        if self._known and rows and not (full or self._at_head) and (attempted := rows[0].state_attempted):
            # All that was ready then is claimed.
            self._since = max(attempted - SLACK, self._known.since)

    def begin(self, now: float) -> tuple[datetime, object] | None:
        """Return the place in the line to begin behind at the monotonic time ``now``; None is its head."""
        if now >= self.wait_until:
            self.place = None
        return self.place

    def end(self, place: tuple[datetime, object] | None, began: float, now: float, *, at_head: bool = True) -> None:
        """Note where the claim ended if it found as many rows as it wanted, else None.

        ``at_head``: it began at the head if it did not begin at its place; else it began at the watermark.
        """
        took = now - began
        if self.place is None:
            self.wait_until = now + max(HEAD_EVERY, took / HEAD_PART)
        if self.place is None and at_head:
            self.head_took = took
        else:
            self.took = took
        self.place = place
        self.strained = self.head_took > STRAINED_FROM and self.head_took > STRAINED * self.took > 0


class Lines:
    """The order of one worker's claims on the ready rows of a model. ``watermark``: where they may begin."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.watermark: Watermark | None = None
        self._turns: dict[tuple[str, ...], Turn] = defaultdict(Turn)

    def next(self, states: list[State]) -> Turn:
        """Count a claim in these states and return their turn."""
        turn = self._turns[tuple(state.name for state in states)]
        turn.claims += 1
        turn.by_age = turn.claims % AGEING == 0
        turn.watermark = self.watermark
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
        locked = line.pick(rows.exclude(pk__in=picked), states, wanted, crashes)
        held = conditions.withheld(locked)
        picked += [pk for pk in locked if pk not in held]
        if not held or len(picked) >= limit:
            break
        # If some are withheld, many more may be: ask for many at once. Rows found free beyond the limit stay ready.
        wanted = LOCKED_AT_ONCE
    return picked[:limit]


def take(rows: QuerySet[Instance], token: UUID, changes: columns.Changes, only: Q = READY) -> list[Instance]:
    """Claim rows that the caller's transaction has locked, if they match ``only``; return the claimed instances.

    Some servers accept SKIP LOCKED and lock nothing: a row that somebody else has claimed is not ready any more.
    """
    claimed = rows.filter(only).update(**changes)
    return load_rows(rows.filter(state_claim=token)) if claimed else []


def claim_one(operations: Operations, pk: Pk) -> Claim | None:
    """Claim one row out of turn, ending any other claim; return None if it is gone or its state is not attempted."""
    token, claimed = new_token(operations.worker_id), time.monotonic()
    field = operations.state_field
    rows = operations.rows.filter(pk=pk, **field.among(operations.automatic))
    with operations.transaction():
        taken = take(rows, token, columns.claiming(token, operations.lease_end()), only=Q())
    states, own = field.states, field.attname
    claims = [Claim(operations.part_with(row), row, states[row.__dict__[own]], token, claimed) for row in taken]
    return next(iter(complete(claims)), None)


def complete(claims: list[Some]) -> list[Some]:
    """Return claims of one model, each with what extensions read of its object beside the row."""
    if claims:
        for bring in claims[0].operations.brought:
            bring(claims)
    return claims
