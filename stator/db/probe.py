"""The poll: one statement that finds out which of several models have work."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F, Func, Model, Q, QuerySet

from stator.db.interface import Operations
from stator.db.refusals import MARK_READY, REAP
from stator.graph.durations import seconds_of
from stator.rows.claimable import Crashes
from stator.rows.clock import Now
from stator.rows.columns import after, come_due
from stator.rows.pauses import Pause, Pauses

NONE = Pauses()

# PostgreSQL returns at most 1,664 columns, SQLite 2,000.
MAX_ANSWERS = 1500

# Filters for the rows that this worker may claim, mark ready and reap.
Open = tuple[Q, Q, Q]


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a model.

    ``ready``: rows to claim.
    ``crashed``: rows that lost a lease.
    ``suspect``: rows to run alone.
    ``due``: rows to mark ready.
    ``expired``: leases that ran out.
    ``next_due``: seconds until the next row comes due; None if that is more than ``POLL_INTERVAL`` away.
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
    """Return the work of each model at this moment; all operations are of one database.

    The statement also shows whether pauses began or ended. If so, they are read and the statement is repeated. Very
    many models take several statements, each with as many columns as one answer has room for.
    """
    if len(group) > 1 and sum(map(_answers, group)) > MAX_ANSWERS:
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
    """Return whether there are rows to mark ready, and expired leases: programs that claim handle both themselves."""
    *_, due_rows, leases = probes(operations)
    parts, params = zip(*(_any(operations, probe) for probe in (due_rows, leases)), strict=True)
    [(due, expired)] = operations.fetch(f"SELECT {', '.join(parts)}", [each for some in params for each in some])
    return bool(due), bool(expired)


def _work(operations: Operations, answers: Iterator[Any]) -> Work:
    ready, crashed, suspect, due, expired = (bool(next(answers)) for _ in range(5))
    times = [next(answers) for _ in operations.graph.automatic_states]
    nearest = min((seconds_of(time) for time in times if time is not None), default=None)
    return Work(ready, crashed, suspect, due, expired, nearest)


def _ask(group: tuple[Operations, ...]) -> tuple[list[Any], tuple[int, int]]:
    """Return the answers for all models, and the number and the sum of ids of the active pauses."""
    # A filter with unhashable values or with subqueries is a new one each time.
    statement, params = _statement(group, _pauses(group), tuple(map(_open, group)))
    *found, count, total = group[0].fetch(statement, list(params))[0]
    return found, (int(count or 0), int(total or 0))


def _pauses(group: tuple[Operations, ...]) -> tuple[Pauses, ...]:
    return tuple(operations.pauses or NONE for operations in group)


def probes(operations: Operations, open_rows: Open | None = None) -> list[list[QuerySet[Model]]]:
    """Return, for each field of :class:`Work`, querysets; at least one has rows if there is such work."""
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


def _coming(operations: Operations) -> list[QuerySet[Model, dict[str, Any]]]:
    """Return, for each automatic state, how long until its next row comes due if that is soon. Index ``st_rest``."""
    left = ExpressionWrapper(F("state_next_attempt") - Now(), output_field=DurationField())
    soon = Q(state_next_attempt__gt=Now(), state_next_attempt__lte=after(operations.settings.POLL_INTERVAL))
    return [
        # One state at a time: across several states the index does not have the times in order.
        operations.waiting(state.name).filter(soon).order_by("state_next_attempt").values(left=left)
        for state in operations.automatic
    ]


@lru_cache(maxsize=16)
def _statement(
    group: tuple[Operations, ...], pauses: tuple[Pauses, ...], open_rows: tuple[Open, ...]
) -> tuple[str, tuple[object, ...]]:
    """Return the statement and its parameters; the time in it is the database's own, so it can be cached."""
    parts: list[str] = []
    params: list[object] = []
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
        # Django must not take the function for an aggregate, or it would group the rows.
        number = Func("pk", function=function, output_field=BigIntegerField())
        sql, arguments = Pause.objects.active().values(number=number).query.get_compiler(using=group[0].alias).as_sql()
        parts.append(f"({sql})")
        params.extend(arguments)
    return f"SELECT {', '.join(parts)}", tuple(params)


def _any(operations: Operations, probe: list[QuerySet[Model]]) -> tuple[str, list[object]]:
    """Return an expression, and its parameters, for whether any of the querysets has a row."""
    parts, params = zip(*(_exists(operations, rows) for rows in probe), strict=True)
    return f"({' OR '.join(parts)})", [each for some in params for each in some]


def _exists(operations: Operations, probe: QuerySet[Model]) -> tuple[str, tuple[object, ...]]:
    """Return an expression, and its parameters, for whether there is such a row."""
    query = probe.order_by().values("pk")[:1].query
    # Empty parts are not elided: for a graph without automatic states Django knows that some parts are empty.
    statement, params = query.get_compiler(using=operations.alias, elide_empty=False).as_sql()
    return f"EXISTS ({statement})", params
