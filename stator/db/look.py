"""One look for work: a statement that asks for several models at once whether there is anything to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F, Func, Q, QuerySet
from django.db.models.functions import Now

from stator.columns import after, come_due
from stator.db.base import Operations
from stator.db.claim import Crashes
from stator.db.refusals import MARK_READY, REAP
from stator.pauses import Pause, Pauses

NONE = Pauses()

# PostgreSQL gives at most 1,664 columns, SQLite 2,000.
MOST_ANSWERS = 1500

# The rows that this worker may claim, mark ready and reap.
Open = tuple[Q, Q, Q]


@dataclass(frozen=True, slots=True)
class Work:
    """What a model has to do: rows to claim, those that lost a lease, those to run alone, those to mark ready, leases
    that ran out.

    ``next_due``: seconds until the next row comes due; None when that is more than ``POLL_INTERVAL`` away.
    """

    ready: bool = False
    crashed: bool = False
    suspect: bool = False
    due: bool = False
    expired: bool = False
    next_due: float | None = None

    @property
    def has_rows(self) -> bool:
        """Whether there are rows to attempt now."""
        return self.ready or self.crashed or self.suspect or self.due


def look(*group: Operations) -> dict[Operations, Work]:
    """What each model has to do at this moment; all operations are of one database.

    The same statement tells whether pauses began or ended; then they are read, and it is asked again. Of very many
    models several are asked, each about as many as one answer has room for.
    """
    if len(group) > 1 and sum(map(_answers, group)) > MOST_ANSWERS:
        half = len(group) // 2
        return look(*group[:half]) | look(*group[half:])
    found, seen = _ask(group)
    if any(operations.pauses is None or operations.pauses.seen != seen for operations in group):
        before = _pauses(group)
        active = group[0].read_pauses() if seen != NONE.seen else []
        for operations in group:
            operations.pauses = Pauses.of(operations.label, active)
        found, _ = (found, seen) if _pauses(group) == before else _ask(group)
    answers = iter(found)
    return {operations: _work(operations, answers) for operations in group}


def _answers(operations: Operations) -> int:
    return 5 + len(operations.graph.automatic_states)


def overdue(operations: Operations) -> tuple[bool, bool]:
    """Whether there are rows to mark ready, and leases that ran out: what programs that claim see to themselves."""
    *_, due_rows, leases = probes(operations)
    parts, params = zip(*(_any(operations, probe) for probe in (due_rows, leases)), strict=True)
    [(due, expired)] = operations.fetch(f"SELECT {', '.join(parts)}", [each for some in params for each in some])
    return bool(due), bool(expired)


def _work(operations: Operations, answers: Iterator[Any]) -> Work:
    ready, crashed, suspect, due, expired = (bool(next(answers)) for _ in range(5))
    times = [next(answers) for _ in operations.graph.automatic_states]
    nearest = min((_seconds(time) for time in times if time is not None), default=None)
    return Work(ready, crashed, suspect, due, expired, nearest)


def _seconds(time: timedelta | int) -> float:
    """A length of time as databases give it, those without such a type as microseconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time / 1_000_000


def _ask(group: tuple[Operations, ...]) -> tuple[list[Any], tuple[int, int]]:
    """The answers for all models, and the number and the sum of ids of the active pauses."""
    # A filter with values that cannot be hashed, or with subqueries, is a new one each time.
    statement, params = _statement(group, _pauses(group), tuple(map(_open, group)))
    *found, count, total = group[0].fetch(statement, list(params))[0]
    return found, (int(count or 0), int(total or 0))


def _pauses(group: tuple[Operations, ...]) -> tuple[Pauses, ...]:
    return tuple(operations.pauses or NONE for operations in group)


def probes(operations: Operations, open_rows: Open | None = None) -> list[list[QuerySet[Any]]]:
    """For each field of :class:`Work` querysets of which one is not empty where there is such work."""
    claim, mark_ready, reap = open_rows or _open(operations)
    claimable = operations.claimable(list(operations.graph.automatic_states)).filter(claim)
    return [
        *([claimable.filter(operations.crashed(crashes))] for crashes in Crashes),
        [operations.waiting().filter(part & mark_ready) for part in come_due()],
        [operations.rows.filter(part & reap) for part in operations.expired()],
    ]


def _open(operations: Operations) -> Open:
    refusals = operations.refusals
    return operations.open_to_me(), refusals.others(MARK_READY), refusals.others(REAP)


def _coming(operations: Operations) -> list[QuerySet[Any]]:
    """For each automatic state how long it is until its next row comes due, where that is soon. Index ``st_rest``."""
    left = ExpressionWrapper(F("state_next_attempt") - Now(), output_field=DurationField())
    soon = Q(state_next_attempt__gt=Now(), state_next_attempt__lte=after(operations.settings.POLL_INTERVAL))
    return [
        # One state at a time: in the index the times of several are not in order.
        operations.waiting(state.name).filter(soon).order_by("state_next_attempt").values(left=left)
        for state in operations.graph.automatic_states
    ]


@lru_cache(maxsize=16)
def _statement(
    group: tuple[Operations, ...], pauses: tuple[Pauses, ...], open_rows: tuple[Open, ...]
) -> tuple[str, tuple[Any, ...]]:
    """The statement and its parameters; the only moment it asks for is the database's own, so it stays the same."""
    parts: list[str] = []
    params: list[Any] = []
    for operations, open_to_me in zip(group, open_rows, strict=True):
        for probe in probes(operations, open_to_me):
            sql, arguments = _any(operations, probe)
            parts.append(sql)
            params.extend(arguments)
        for coming in _coming(operations):
            sql, arguments = coming[:1].query.get_compiler(using=operations.alias, elide_empty=False).as_sql()
            parts.append(f"({sql})")
            params.extend(arguments)
    for function in ("COUNT", "SUM"):
        # Not an aggregate to Django, so that nothing is grouped.
        number = Func("pk", function=function, output_field=BigIntegerField())
        sql, arguments = Pause.objects.active().values(number=number).query.get_compiler(using=group[0].alias).as_sql()
        parts.append(f"({sql})")
        params.extend(arguments)
    return f"SELECT {', '.join(parts)}", tuple(params)


def _any(operations: Operations, probe: list[QuerySet[Any]]) -> tuple[str, list[Any]]:
    """Whether there is a row in any of the querysets: an expression and its parameters."""
    parts, params = zip(*(_exists(operations, rows) for rows in probe), strict=True)
    return f"({' OR '.join(parts)})", [each for some in params for each in some]


def _exists(operations: Operations, probe: QuerySet[Any]) -> tuple[str, tuple[Any, ...]]:
    """Whether there is such a row: an expression and its parameters."""
    query = probe.order_by().values("pk")[:1].query
    # Django knows some of the questions about a graph that nothing attempts to be empty.
    statement, params = query.get_compiler(using=operations.alias, elide_empty=False).as_sql()
    return f"EXISTS ({statement})", params
