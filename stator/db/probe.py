"""The poll: one statement that finds out which of several models have work."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from django.db.models import F, Model, Q, QuerySet

from stator.db.chores import open_deadlines
from stator.db.claims import SLACK
from stator.db.conditions import ALL, MARK_READY, REAP, TIME_OUT, StoredCondition, read_again, stored_kinds
from stator.db.interface import Operations
from stator.db.values import Row
from stator.graph.durations import seconds_of
from stator.rows.claimable import Crashes
from stator.rows.clock import Elapsed, Now
from stator.rows.columns import after
from stator.rows.dates import RowDate
from stator.rows.indexes import place_in_line
from stator.rows.watermark import SINCE, Side, on_side
from stator.statements import Statement, existing, first, joined, selecting

# PostgreSQL returns at most 1,664 columns, SQLite 2,000.
MAX_ANSWERS = 1500
# What a poll finds about stored conditions, see :meth:`StoredCondition.asked`.
Signs = dict[type[StoredCondition], int]


class Open(NamedTuple):
    """The names of the states in which this worker may claim, and the rows that it may claim, mark ready and reap.

    ``time_out``: rows of these states that it may move by a deadline. ``deadlines``: rows that it may move by each.
    """

    states: tuple[str, ...]
    claim: Q
    mark_ready: Q
    reap: Q
    time_out: Q = ALL
    deadlines: tuple[Q, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a model.

    ``ready``: rows to claim.
    ``crashed``: rows that lost a lease.
    ``suspect``: rows to run alone.
    ``due``: rows to mark ready.
    ``expired``: leases that ran out.
    ``past``: rows whose deadline has passed.
    ``next_due``: seconds until the next row comes due, or meets its deadline; None if that is more than
    ``POLL_INTERVAL`` away.
    """

    ready: bool = False
    crashed: bool = False
    suspect: bool = False
    due: bool = False
    expired: bool = False
    past: bool = False
    next_due: float | None = None

    @property
    def has_rows(self) -> bool:
        """Whether there are rows to attempt or to move now."""
        return self.ready or self.crashed or self.suspect or self.due or self.past

    def __or__(self, other: "Work") -> "Work":
        """Return this work and what another look found in other parts of the indexes."""
        return replace(
            self, ready=self.ready or other.ready, due=self.due or other.due, expired=self.expired or other.expired
        )


# The answer about a model whose rows are on several nodes while one of them is away: each part is tried by itself.
# Rows to run alone are left to the reaping, since looking for one in vain would hold up other claims.
MAY_BE = Work(ready=True, crashed=True, due=True, expired=True, past=True)


def look(*group: Operations, watermark: datetime | None = None) -> dict[Operations, Work]:
    """Return the work of each model at this moment; all operations are of one database.

    ``watermark``: leave out what is ready, due or expired since before this time.

    The statement also shows whether stored conditions came or went. If so, they are read, and the statement is repeated
    if that changes what these models claim. Very many models take several statements, each with as many columns as one
    answer has room for.
    """
    if len(group) > 1 and sum(map(answers_about, group)) > MAX_ANSWERS:
        half = len(group) // 2
        return look(*group[:half], watermark=watermark) | look(*group[half:], watermark=watermark)
    answered, signs = _ask(group, watermark)
    if read_again(group, signs):
        answered, _ = _ask(group, watermark)
    answers = iter(answered)
    return {operations: _work(operations, answers) for operations in group}


def look_before(watermark: datetime, *group: Operations, leases: bool) -> dict[Operations, Work]:
    """Return what is ready or due of each model since before the watermark and, with ``leases``, what is expired."""
    statement = _statement_before(Alike.of(group), tuple(map(_open, group)), leases)
    answers = iter(_sent(group[0], statement, watermark))
    return {
        each: Work(ready=bool(next(answers)), due=bool(next(answers)), expired=leases and bool(next(answers)))
        for each in group
    }


def new_watermark(operations: Operations) -> datetime:
    """Return the time of the database, a little earlier, as a watermark of the next looks."""
    [(now,)] = operations.fetch("SELECT statement_timestamp()", ())
    watermark: datetime = now - SLACK
    return watermark


def answers_about(operations: Operations) -> int:
    """Return the number of columns that a poll has for a model; those of stored conditions come last."""
    deadlines = len(operations.deadlines)
    return 5 + len(operations.graph.automatic_states) + deadlines + bool(deadlines) + len(operations.starts)


def overdue(operations: Operations) -> tuple[bool, bool]:
    """Return whether there are rows to mark ready, and expired leases: programs that claim handle both themselves."""
    *_, due_rows, leases = probes(operations)
    statement = Statement.of("SELECT ", joined([_any(due_rows), _any(leases)], ", "))
    [(due, expired)] = operations.fetch(statement.text, statement.params)
    return bool(due), bool(expired)


def _work(operations: Operations, answers: Iterator[Any]) -> Work:
    past = bool(operations.deadlines) and bool(next(answers))
    ready, crashed, suspect, due, expired = (bool(next(answers)) for _ in range(5))
    times = [next(answers) for _ in (*operations.automatic, *operations.deadlines, *operations.starts)]
    nearest = min((seconds_of(time) for time in times if time is not None), default=None)
    return Work(ready, crashed, suspect, due, expired, past, nearest)


def _ask(group: tuple[Operations, ...], watermark: datetime | None) -> tuple[list[object], Signs]:
    """Return the answers for all models, and what tells whether stored conditions came or went."""
    open_to = {operations: _open(operations) for operations in group}
    own = {each: answered for each in group if (answered := each.division.answers(open_to[each])) is not None}
    others = tuple(operations for operations in group if operations not in own)
    # A filter with unhashable values or with subqueries is a new one each time.
    kinds = stored_kinds(group)
    side: Side | None = None if watermark is None else "gte"
    statement = _statement(Alike.of(others), kinds, tuple(open_to[each] for each in others), group[0].alias, side)
    answers = iter(_sent(group[0], statement, watermark))
    of_each = (own.get(operations) or islice(answers, answers_about(operations)) for operations in group)
    answered = list(chain.from_iterable(of_each))
    return answered, {kind: int(next(answers) or 0) for kind in kinds}


def _sent(operations: Operations, statement: Statement, watermark: datetime | None) -> Row:
    params = statement.params if watermark is None else statement.bind(operations.connection, {SINCE: watermark})
    return operations.fetch(statement.text, params)[0]


def probes(
    operations: Operations, open_rows: Open | None = None, side: Side | None = None
) -> list[list[QuerySet[Model]]]:
    """Return, for each field of :class:`Work`, querysets; at least one has rows if there is such work.

    Those of rows past a deadline come first, if the model has deadlines. ``side``: of the watermark; before it, only
    what is ready, due or expired is looked for.
    """
    _, claim, mark_ready, reap, _, moved = open_rows or _open(operations)
    past = [operations.past(each).filter(others) for each, others in zip(operations.deadlines, moved, strict=True)]
    claimable = operations.claimable(operations.automatic).filter(claim)
    ready, *crashed = (claimable.filter(operations.crashed(crashes)) for crashes in Crashes)
    due, *undated = (rows.filter(mark_ready) for rows in operations.due())
    expired, *impossible = (rows.filter(reap) for rows in operations.lost())
    if side:
        ready = on_side(ready, place_in_line(), side)
        due = on_side(due, F("state_next_attempt"), side)
        expired = on_side(expired, F("state_locked_until"), side)
    if side == "lt":
        return [[ready], [due], [expired]]
    return [
        *([past] if past else []),
        [ready],
        *([rows] for rows in crashed),
        [due, *undated],
        [expired, *impossible],
    ]


def _open(operations: Operations) -> Open:
    conditions = operations.conditions
    states = tuple(state.name for state in conditions.states(operations.automatic))
    opened = Open(states, conditions.rows(), conditions.rows(MARK_READY), conditions.rows(REAP))
    if not operations.deadlines:
        return opened
    return opened._replace(time_out=conditions.rows(TIME_OUT), deadlines=open_deadlines(operations))


def coming(operations: Operations, within: float) -> list[QuerySet[Model, dict[str, object]]]:
    """Return, for each automatic state, how long until its next row comes due, if it does ``within`` seconds.

    Then the same for each deadline, and each date before which rows are not attempted. Indexes ``st_rest``, ``st_at``
    and ``st_try``.
    """
    left = Elapsed(Now(), until=F("state_next_attempt"))
    soon = Q(state_next_attempt__gt=Now(), state_next_attempt__lte=after(within))
    dated: list[tuple[QuerySet[Model], RowDate]] = [
        *((operations.nearing(each, within), each) for each in operations.deadlines),
        *((operations.beginning(each, within), each) for each in operations.starts),
    ]
    return [
        # One state at a time: across several states the index does not have the times in order.
        operations.waiting(state.name).filter(soon).order_by("state_next_attempt").values(left=left)
        for state in operations.automatic
    ] + [rows.values(left=Elapsed(Now(), until=each.date)) for rows, each in dated]


@dataclass(frozen=True, slots=True)
class Alike:
    """Operations as the key of a cached statement, which is the same for the same models in another schema."""

    kinds: tuple[Hashable, ...]
    operations: tuple[Operations, ...] = field(compare=False)

    @classmethod
    def of(cls, group: Iterable[Operations]) -> "Alike":
        """Return the key for a group of operations."""
        models = tuple(group)
        return cls(tuple((each.model, each.alias, each.worker_id, id(each.settings)) for each in models), models)


@lru_cache(maxsize=32)
def _statement(
    alike: Alike,
    kinds: tuple[type[StoredCondition], ...],
    open_rows: tuple[Open, ...],
    alias: str,
    side: Side | None = None,
) -> Statement:
    """Return the statement; the time in it is the database's own, so it can be cached."""
    answers: list[Statement] = []
    group = alike.operations
    for operations, open_to_me in zip(group, open_rows, strict=True):
        answers += map(_any, probes(operations, open_to_me, side))
        answers += [first(rows) for rows in coming(operations, operations.settings.POLL_INTERVAL)]
    answers += [Statement.of("(", selecting(kind.asked(alias)), ")") for kind in kinds]
    return Statement.of("SELECT ", joined(answers, ", "))


@lru_cache(maxsize=32)
def _statement_before(alike: Alike, open_rows: tuple[Open, ...], leases: bool) -> Statement:
    answers: list[Statement] = []
    for operations, open_to_me in zip(alike.operations, open_rows, strict=True):
        ready, due, expired = probes(operations, open_to_me, "lt")
        answers += map(_any, [ready, due, *([expired] if leases else [])])
    return Statement.of("SELECT ", joined(answers, ", "))


def _any(probe: list[QuerySet[Model]]) -> Statement:
    """Return an expression for whether any of the querysets has a row."""
    return Statement.of("(", joined(list(map(existing, probe)), " OR "), ")")
