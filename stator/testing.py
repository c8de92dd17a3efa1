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
from stator.rows.meta import managed, owner_of
from stator.rows.reports import Report
from stator.runner import StatorRunner, attempt_row

__all__ = [
    "Moved", "NotDrained", "Outcome", "Released", "Waiting",
    "advance", "assert_moves", "attempt", "check_graph", "drain",
]  # fmt: skip

TIMES = ("state_changed", "state_attempted", "state_next_attempt", "state_locked_until")
NAMED = 5


class NotDrained(StatorError, AssertionError):
    """Rows are still ready after the allowed number of cycles: their graph goes round in a circle."""


def drain(*models: type[StatorModel], limit: int = 100) -> int:
    """Take one step of every row that is ready or due, again and again until none is left; return how many attempts.

    It takes the given models, or all managed ones. A row that waits is not due again: use :func:`advance`. Raises
    :class:`NotDrained` with some rows if rows are ready even after ``limit`` steps of each.

    >>> Parcel.objects.create(orders="wait") and drain(Parcel)
    1
    """
    runner = StatorRunner(list(models) or None)
    attempts = 0
    for _ in range(limit):
        made = runner.run_single_cycle()
        attempts += made
        if not made:
            return attempts
    if left := [description for model in runner.models for description in _still_ready(model)]:
        raise NotDrained(f"still ready after {limit} steps: {', '.join(left)}")
    return attempts


def attempt(row: StatorModel) -> Outcome:
    """Attempt one row now, due or not, and refresh it; return the outcome.

    It ends any claim on the row. Raises ``ValueError`` if no worker would ever attempt it, for instance in a terminal
    state.

    >>> parcel = Parcel.objects.create(orders="fail", address="no number")
    >>> attempt(parcel).failure.message
    'no number'
    >>> parcel.state, parcel.state_failures
    ('packed', 1)
    """
    outcome = attempt_row(row)
    row.refresh_from_db()
    return outcome


def advance(seconds: float, *models: type[Model]) -> None:
    """Let ``seconds`` pass for every row of the given models, or of all that are managed.

    The times of rows move into the past: when they entered their state, were attempted, are due, and when their leases
    end. Rows in memory, reports and statistics stay as they are.

    >>> parcel = Parcel.objects.create(orders="wait")
    >>> drain(Parcel)
    1
    >>> advance(61, Parcel)
    >>> drain(Parcel)
    1
    """
    if seconds < 0:
        raise ValueError(f"advance({seconds}): time goes forward only")
    past = timedelta(seconds=seconds)
    for model in managed(list(models) or StatorModel.subclasses):
        rows: QuerySet[Model] = QuerySet(model, using=router.db_for_write(model))
        rows.update(**{name: F(name) - past for name in TIMES})


def assert_moves(row: StatorModel, *states: State | str, models: Sequence[type[StatorModel]] = ()) -> None:
    """Drain the model of ``row``, compare the states that the row goes through, and refresh it.

    ``models``: drain these as well, if the row waits for rows of theirs.

    >>> parcel = Parcel.objects.create()
    >>> assert_moves(parcel, "stamped", "sent")
    >>> parcel.transition_perform("packed")
    >>> assert_moves(parcel, "stamped", "delivered")
    Traceback (most recent call last):
    AssertionError: testapp.Parcel 1 went packed -> stamped -> sent, expected packed -> stamped -> delivered
    """
    row.refresh_from_db()
    path = [str(row.state)]
    with _following(row, path):
        drain(type(row), *models)
    try:
        row.refresh_from_db()
    except ObjectDoesNotExist:
        path.append("(deleted)")
    else:
        path += [row.state] if row.state != path[-1] else []
    expected = [path[0], *map(str, states)]
    if path != expected:
        raise AssertionError(
            f"{row._meta.label} {row.pk} went {_arrows(path)}, expected {_arrows(expected)}{_last_words(row)}"
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
    """Explore a graph and raise ``AssertionError`` for the first fault, with the shortest way found to it.

    Needs Hypothesis, and no database unless the handlers do. ``objects``: a Hypothesis strategy of objects to run the
    handlers on; without it no handler runs. ``raises``: errors that handlers may raise. ``entries``: states into which
    objects are put by hand. It takes ``max_examples`` walks of up to ``max_steps`` steps, always the same ones.

    >>> check_graph(Parcel.state_graph)
    >>> check_graph(Parcel.state_graph, objects=strategies.builds(Parcel, orders=strategies.sampled_from(["", "fail"])))
    Traceback (most recent call last):
    AssertionError: ParcelGraph.packed: the handler raised ValueError: ; name the error in raises= if it may; ...
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


def _last_words(row: StatorModel) -> str:
    reports = Report.objects.using(row._state.db).filter(
        model_label=owner_of(type(row))._meta.label_lower, object_pk=str(row.pk)
    )
    report = reports.first()
    return f"; latest report, in {report.state}: {report.error or 'waiting'}: {report.message}" if report else ""
