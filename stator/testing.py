"""Tools for a project's tests: run handlers in the test's own thread and transaction, and move time without waiting.

>>> parcel = Parcel.objects.create(address="Main Street 1")
>>> drain(Parcel)
2
>>> parcel.refresh_from_db()
>>> parcel.state
'sent'
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from django.core.exceptions import ObjectDoesNotExist
from django.db import router
from django.db.models import F, Model, QuerySet

from stator import signals
from stator.draining import NotDrained, NotSaved, all_saved, drain
from stator.extensions.events.testing import Sent, asend, send
from stator.extensions.related.testing import finish_children
from stator.extensions.steps.testing import steps
from stator.graph import State, StateGraph
from stator.graph.backoff import MAX_SECONDS
from stator.graph.options import is_number
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.models import StatorModel
from stator.rows.dates import columns_of_dates
from stator.rows.meta import home_of, managed, owner_of
from stator.rows.readings import read
from stator.rows.record_tables import RECORD_TABLES
from stator.rows.state_column import state_name
from stator.runner import attempt_row
from stator.scopes import in_parts

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Moved",
    "NotDrained",
    "NotSaved",
    "Outcome",
    "Released",
    "Sent",  # stator.extensions.events
    "Waiting",
    "advance",
    "asend",  # stator.extensions.events
    "assert_moves",
    "attempt",
    "check_graph",
    "drain",
    "finish_children",  # stator.extensions.related
    "send",  # stator.extensions.events
    "steps",  # stator.extensions.steps
]  # fmt: skip

TIMES = ("state_changed", "state_attempted", "state_next_attempt", "state_locked_until")


def attempt(row: StatorModel) -> Outcome:
    """Attempt one row now, due or not, and refresh it; return the outcome.

    It ends any claim on the row. Raises ``ValueError`` if the state of the row is never attempted, for instance because
    it is terminal, and :class:`NotSaved` as :func:`drain` does.

    >>> parcel = Parcel.objects.create(orders="fail", address="no number")
    >>> attempt(parcel).failure.message
    'no number'
    >>> parcel.state, parcel.state_failures
    ('packed', 1)
    """
    with all_saved() as finder:
        outcome = attempt_row(row, around=[finder])
    row.refresh_from_db(home_of(row))
    return outcome


def advance(seconds: float, *models: type[Model]) -> None:
    """Let ``seconds`` pass for every row of the given models, or of all managed ones.

    It moves the times of rows into the past: when they entered their state, were attempted, are due, and when their
    leases end; also your columns of dates that the graph names, such as ``times_out_to(..., at="expires")``. Instances
    in memory, reports and statistics stay as they are.

    >>> parcel = Parcel.objects.create(orders="wait")
    >>> drain(Parcel)
    1
    >>> advance(61, Parcel)
    >>> drain(Parcel)
    1
    """
    if not is_number(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(
            f"advance({seconds!r:.100}): give a number of seconds of at least 0, such as 3600, and at most "
            f"{MAX_SECONDS:.0f}; time only moves forward"
        )
    past = timedelta(seconds=seconds)
    for model in managed(list(models) or StatorModel.subclasses):
        rows: QuerySet[Model] = QuerySet(model, using=router.db_for_write(model))
        for part in in_parts(rows):
            part.update(**{name: F(name) - past for name in (*TIMES, *columns_of_dates(model))})
        for table in RECORD_TABLES:
            if name := table.entered:
                records: QuerySet[Model] = QuerySet(table.model, using=rows.db)
                records.filter(model_label=model._meta.label_lower).update(**{name: F(name) - past})


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
    path = [state_name(row)]
    with _following(row, path):
        drain(type(row), *models)
    try:
        row.refresh_from_db(home_of(row))
    except ObjectDoesNotExist:
        path.append("(deleted)")
    else:
        path += [state_name(row)] if state_name(row) != path[-1] else []
    expected = [path[0], *map(str, states)]
    if path != expected:
        raise AssertionError(
            f"{row._meta.label} {row.pk} went {_arrows(path)}, expected {_arrows(expected)}{_latest_report(row)}"
        )


def check_graph(
    graph: type[StateGraph],
    *,
    objects: "SearchStrategy[object] | None" = None,
    raises: Iterable[type[Exception]] = (),
    entries: Iterable[State | str] = (),
    events: "Mapping[str, SearchStrategy[object] | None] | None" = None,
    max_examples: int = 50,
    max_steps: int = 20,
) -> None:
    """Explore a graph and raise ``AssertionError`` for the first fault, with the shortest path found to it.

    Needs Hypothesis, and no database unless the handlers do. ``objects``: a Hypothesis strategy of objects to run the
    handlers on; without it no handler runs. ``raises``: errors that handlers may raise. ``entries``: states into which
    objects are put by hand. ``events``: Hypothesis strategies of payloads by event, as their forms return them;
    handlers read them as ``instance.stator.event``. It makes ``max_examples`` walks of up to ``max_steps`` steps, the
    same ones in each run.

    >>> check_graph(Parcel.state_graph)
    >>> check_graph(Parcel.state_graph, objects=strategies.builds(Parcel, orders=strategies.sampled_from(["", "fail"])))
    Traceback (most recent call last):
    AssertionError: ParcelGraph.packed: the handler raised ValueError: ; if it may, add it to raises=; ...
    """
    if not (isinstance(graph, type) and issubclass(graph, StateGraph) and graph.states):
        raise TypeError(
            f"check_graph({graph!r:.100}) takes a StateGraph; pass the graph of a model as Parcel.state_graph"
        )
    exploring = import_module("stator.testing_graph")
    starts = exploring.entries_of(graph, list(entries))
    plan = exploring.WalkPlan(graph, starts, objects, tuple(raises), events=dict(events or {}))
    exploring.explore(plan, max_examples, max_steps)


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


def _arrows(path: list[str]) -> str:
    return " -> ".join(path) if len(path) > 1 else f"nowhere from {path[0]}"


def _latest_report(row: StatorModel) -> str:
    report = read("report", home_of(row), type(row), row.pk, otherwise=None)
    return f"; latest report, in {report.state}: {report.error or 'waiting'}: {report.message}" if report else ""
