"""Conditions of rows that operators look for, found by indexes even if few of millions of rows match."""

from collections.abc import Callable, Iterable, Iterator

from django.db.models import Model, QuerySet

from stator.querysets import OVERDUE, OperatorQuerySet
from stator.rows import columns
from stator.rows.claimable import READY
from stator.rows.dates import start_of
from stator.rows.indexes import line_of_all
from stator.rows.meta import graph_of
from stator.survey.depths import far_future, resting_in, resting_unknown

Parts = Callable[[OperatorQuerySet[Model]], Iterator[QuerySet[Model]]]


def _stuck(rows: OperatorQuerySet[Model]) -> Iterator[QuerySet[Model]]:
    """Yield stuck rows: resting ones by state, in ranges of the index ``st_rest``; then ready ones, then held ones."""
    for state in graph_of(rows.model).states.values():
        if state.expect_within:
            late = resting_in(rows, state).filter(state_changed__lte=columns.after(-state.expect_within))
            yield late.filter(state_next_attempt=None).order_by("state_changed")
            yield late.filter(state_next_attempt__isnull=False)
    yield rows.stuck().filter(READY)
    yield rows.stuck().leased()


def _overdue(rows: OperatorQuerySet[Model]) -> Iterator[QuerySet[Model]]:
    """Yield overdue rows: ready ones, first in line first; then, by state, due ones that are not marked ready yet."""
    yield rows.overdue().filter(READY).order_by(*line_of_all(rows.model, by_age=True))
    since = columns.after(-OVERDUE)
    for state in graph_of(rows.model).automatic_states:
        resting = resting_in(rows.overdue(), state)
        undated = resting.filter(state_next_attempt=None, state_changed__lte=since).order_by("state_changed")
        if start := start_of(rows.model, state):
            yield resting.filter(start.met(since), state_next_attempt=None)
            undated = undated.filter(start.missing)
        yield undated
        yield resting.filter(state_next_attempt__lte=since)


def _unknown(rows: OperatorQuerySet[Model]) -> Iterator[QuerySet[Model]]:
    """Yield rows in unknown states: resting, ready and held ones."""
    yield resting_unknown(rows)
    yield rows.unknown().filter(READY)
    yield rows.unknown().leased()


# The title and rows of each condition; if no single index has the rows, parts that indexes have.
CONDITIONS: dict[str, tuple[str, Callable[[OperatorQuerySet[Model]], OperatorQuerySet[Model]], Parts | None]] = {
    "ready": ("ready", OperatorQuerySet.ready, None),
    "leased": ("leased", OperatorQuerySet.leased, None),
    "failing": ("failing", OperatorQuerySet.failed, None),
    "quarantined": ("quarantined", OperatorQuerySet.quarantined, None),
    "stuck": ("stuck", OperatorQuerySet.stuck, _stuck),
    "overdue": ("overdue", OperatorQuerySet.overdue, _overdue),
    "far": ("due in over a year", far_future, None),
    "unknown": ("in an unknown state", OperatorQuerySet.unknown, _unknown),
}


def parts_of(name: str, rows: OperatorQuerySet[Model]) -> Iterable[QuerySet[Model]]:
    """Return the rows in a condition, in parts that indexes have."""
    _, meant, parts = CONDITIONS[name]
    return parts(rows) if parts else [meant(rows)]
