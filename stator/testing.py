"""Tools for a project's tests: run handlers in the test's own thread and transaction, and move time without waiting.

>>> parcel = Parcel.objects.create(address="Main Street 1")
>>> drain(Parcel)
2
>>> parcel.refresh_from_db()
>>> parcel.state
'sent'
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import router
from django.db.models import F, Model, QuerySet

from stator import signals
from stator.exceptions import StatorError
from stator.graph import State, StateGraph
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.meta import home_of, managed, owner_of
from stator.rows.reports import Report
from stator.runner import StatorRunner, attempt_row

__all__ = [
    "Moved", "NotDrained", "Outcome", "Released", "Waiting",
    "advance", "assert_moves", "attempt", "check_graph", "drain",
]  # fmt: skip

TIMES = ("state_changed", "state_attempted", "state_next_attempt", "state_locked_until")
NAMED = 5


class NotDrained(StatorError, AssertionError):
    """Rows are still ready after the allowed number of cycles: their graph has a loop without a delay."""


def drain(*models: type[StatorModel], limit: int = 100) -> int:
    """Attempt every ready or due row, again and again until none is left; return the number of attempts.

    Without models, it drains all managed ones. A row whose handler returned None is due later: call :func:`advance`.
    Raises :class:`NotDrained`, which names some rows, if rows are still ready after ``limit`` attempts of each.

    >>> Parcel.objects.create(orders="wait") and drain(Parcel)
    1
    """
    runner = StatorRunner(list(models) or None)
    # A test has chosen its schema.
    runner.schemas = ()
    attempts = 0
    for _ in range(limit):
        made = runner.run_single_cycle()
        attempts += made
        if not made:
            return attempts
    if left := [description for model in runner.models for description in _still_ready(model)]:
        raise NotDrained(f"still ready after {limit} attempts each: {', '.join(left)}")
    return attempts


def attempt(row: StatorModel) -> Outcome:
    """Attempt one row now, due or not, and refresh it; return the outcome.

    It ends any claim on the row. Raises ``ValueError`` if the state of the row is never attempted, for instance because
    it is terminal.

    >>> parcel = Parcel.objects.create(orders="fail", address="no number")
    >>> attempt(parcel).failure.message
    'no number'
    >>> parcel.state, parcel.state_failures
    ('packed', 1)
    """
    outcome = attempt_row(row)
    row.refresh_from_db(home_of(row))
    return outcome


def advance(seconds: float, *models: type[Model]) -> None:
    """Let ``seconds`` pass for every row of the given models, or of all managed ones.

    It moves the times of rows into the past: when they entered their state, were attempted, are due, and when their
    leases end. Instances in memory, reports and statistics stay as they are.

    >>> parcel = Parcel.objects.create(orders="wait")
    >>> drain(Parcel)
    1
    >>> advance(61, Parcel)
    >>> drain(Parcel)
    1
    """
    if seconds < 0:
        raise ValueError(f"advance({seconds}): seconds must be at least 0, because time only moves forward")
    past = timedelta(seconds=seconds)
    for model in managed(list(models) or StatorModel.subclasses):
        rows: QuerySet[Model] = QuerySet(model, using=router.db_for_write(model))
        rows.update(**{name: F(name) - past for name in TIMES})


def assert_moves(row: StatorModel, *states: State | str, models: Sequence[type[StatorModel]] = ()) -> None:
    """Drain the model of ``row``, assert that the row goes through exactly ``states``, and refresh it.

    ``models``: drain these models too, for instance because the row waits for their rows.

    >>> parcel = Parcel.objects.create()
    >>> assert_moves(parcel, "stamped", "sent")
    >>> parcel.transition_perform("packed")
    >>> assert_moves(parcel, "stamped", "delivered")
    Traceback (most recent call last):
    AssertionError: testapp.Parcel 1 went packed -> stamped -> sent, expected packed -> stamped -> delivered
    """
    row.refresh_from_db(home_of(row))
    path = [str(row.state)]
    with _following(row, path):
        drain(type(row), *models)
    try:
        row.refresh_from_db(home_of(row))
    except ObjectDoesNotExist:
        path.append("(deleted)")
    else:
        path += [row.state] if row.state != path[-1] else []
    expected = [path[0], *map(str, states)]
    if path != expected:
        raise AssertionError(
            f"{row._meta.label} {row.pk} went {_arrows(path)}, expected {_arrows(expected)}{_latest_report(row)}"
        )


def check_graph(
    graph: type[StateGraph],
    *,
    objects: Any = None,
    raises: Iterable[type[Exception]] = (),
    entries: Iterable[State | str] = (),
    max_examples: int = 50,
    max_steps: int = 20,
) -> None:
    """Explore a graph and raise ``AssertionError`` for the first fault, with the shortest path found to it.

    Needs Hypothesis, and no database unless the handlers do. ``objects``: a Hypothesis strategy of objects to run the
    handlers on; without it no handler runs. ``raises``: errors that handlers may raise. ``entries``: states into which
    objects are put by hand. It makes ``max_examples`` walks of up to ``max_steps`` steps, the same ones in each run.

    >>> check_graph(Parcel.state_graph)
    >>> check_graph(Parcel.state_graph, objects=strategies.builds(Parcel, orders=strategies.sampled_from(["", "fail"])))
    Traceback (most recent call last):
    AssertionError: ParcelGraph.packed: the handler raised ValueError: ; if it may, add it to raises=; ...
    """
    exploring = import_module("stator.testing_graph")
    starts = exploring.entries_of(graph, list(entries))
    exploring.explore(exploring.Plan(graph, starts, objects, tuple(raises)), max_examples, max_steps)


@contextmanager
def _following(row: StatorModel, path: list[str]) -> Iterator[None]:
    """Append each state that the row moves to while the context is open."""

    def follow(sender: type[StatorModel], moves: list[signals.Move], **kwargs: object) -> None:
        path.extend(move.to for move in moves if move.pk == row.pk)

    signals.transitioned.connect(follow, sender=owner_of(type(row)), weak=False)
    try:
        yield
    finally:
        signals.transitioned.disconnect(follow, sender=owner_of(type(row)))


def _still_ready(model: type[StatorModel]) -> list[str]:
    rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=router.db_for_write(model))
    ready = rows.ready().order_by("pk")[:NAMED]
    return [f"{model._meta.label} {row.pk} in {row.state} (moved {row.state_version} times)" for row in ready]


def _arrows(path: list[str]) -> str:
    return " -> ".join(path) if len(path) > 1 else f"nowhere from {path[0]}"


def _latest_report(row: StatorModel) -> str:
    reports = Report.objects.using(home_of(row)).filter(
        model_label=owner_of(type(row))._meta.label_lower, object_pk=str(row.pk)
    )
    report = reports.first()
    return f"; latest report, in {report.state}: {report.error or 'waiting'}: {report.message}" if report else ""
