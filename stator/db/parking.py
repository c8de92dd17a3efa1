"""Claims of models whose objects wait for others: waiting rows are parked at their turn, the rest is claimed."""

from collections import defaultdict

from django.db.models import Model, QuerySet

from stator.db.claim import Crashes
from stator.db.interface import Operations
from stator.db.ordering import Lines
from stator.db.transactions import LOCKED_AT_ONCE
from stator.db.values import Pk
from stator.graph import State
from stator.rows import columns
from stator.rows.waits import Wait

# Rounds of one claim before the next claim goes on.
ROUNDS = 10


def pick(operations: Operations, line: Lines, states: list[State], limit: int, crashes: Crashes) -> list[Pk]:
    """Lock up to ``limit`` claimable rows and return their primary keys. Call it in a transaction."""
    rows = operations.open_rows(states)
    if not operations.waits:
        return line.pick(rows, states, limit, crashes)
    picked: list[Pk] = []
    wanted = limit
    for _ in range(ROUNDS):
        found = line.pick(rows.exclude(pk__in=picked), states, wanted, crashes)
        held = _park(operations, found)
        picked += [pk for pk in found if pk not in held]
        if not held or len(picked) >= limit:
            break
        # If some wait, many more may: park many at once. Rows found free beyond the limit stay ready.
        wanted = LOCKED_AT_ONCE
    return picked[:limit]


def _park(operations: Operations, pks: list[Pk]) -> set[Pk]:
    """Park those of the rows that wait for others; return their keys."""
    rows = operations.rows.filter(pk__in=pks)
    waiting: set[Pk] = set()
    parked: set[Pk] = set()
    for wait in operations.waits if pks else ():
        by_awaited = _waiting(operations, rows, wait)
        if not by_awaited:
            continue
        waiting.update(*by_awaited.values())
        # While it is locked, the awaited object has either moved visibly, or its move will find the row parked.
        held = operations.keep(wait.unsettled(operations.alias).filter(pk__in=list(by_awaited)))
        parked.update(*(by_awaited[pk] for pk in held))
    for held_up, changes in ((parked, columns.parking()), (waiting - parked, columns.postponing())):
        if held_up:
            operations.rows.filter(pk__in=held_up).update(**changes)
    return waiting


def _waiting(operations: Operations, rows: QuerySet[Model], wait: Wait) -> dict[Pk, set[Pk]]:
    """Return, for each awaited object, the rows that wait for it."""
    by_awaited: dict[Pk, set[Pk]] = defaultdict(set)
    for pk, awaited in rows.filter(wait.holds(operations.alias)).values_list("pk", wait.key):
        by_awaited[awaited].add(pk)
    return by_awaited
