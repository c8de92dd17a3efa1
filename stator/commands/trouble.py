"""Objects of a model that need attention: found by indexes and bounded, the worst first."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import DurationField, ExpressionWrapper, F, Model, QuerySet

from stator.commands.figures import failing_pks
from stator.explain.troubles import Trouble
from stator.overview.depths import COUNTED, depths, resting_unknown
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.indexes import line_of_all, place_in_line
from stator.texts import escape

# Seconds for which an object may be ready, or a lease be over, before it is listed.
OVERDUE, LATE = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Troubled:
    """An object, its trouble in a word or two, and for how many seconds it has been in its state."""

    pk: object
    what: str
    state: str
    age: float


def lines_of(trouble: Trouble) -> list[str]:
    """Return a problem as lines of a terminal: what is wrong, then the command that mends it."""
    remedy = [f"      -> {trouble.command or trouble.advice}"] if trouble.command or trouble.advice else []
    return [escape(line) for line in (f"{trouble.level:7}  {trouble.where}: {trouble.text}", *remedy)]


def troubled(rows: OperatorQuerySet, limit: int) -> list[Troubled]:
    """Return up to ``limit`` objects, each once, those first that only people can help."""
    found: dict[object, str] = {}
    for what, pks in _sources(rows, limit):
        for pk in pks:
            found.setdefault(pk, what)
        if len(found) >= limit:
            break
    chosen = list(found)[:limit]
    age = ExpressionWrapper(Now() - F("state_changed"), output_field=DurationField())
    there = rows.filter(pk__in=chosen).annotate(stator_age=age).values_list("pk", "state", "stator_age")
    by_pk = {pk: (state, max(0.0, age.total_seconds())) for pk, state, age in there}
    return [Troubled(pk, found[pk], *by_pk[pk]) for pk in chosen if pk in by_pk]


def _sources(rows: OperatorQuerySet, limit: int) -> Iterator[tuple[str, list[object]]]:
    graph = rows.model.state_graph
    # Workers move rows with a former name of a state.
    states = [*graph.states, *graph.renames]
    line = rows.filter(state_ready=True).order_by(*line_of_all(rows.model, by_age=True))
    head = list(line.values_list("pk", "state")[:COUNTED])
    yield "unknown state", [pk for pk, state in head if state not in states]
    yield "unknown state", _pks(resting_unknown(rows, states), limit)
    yield "quarantined", _pks(rows.filter(state_crashes__gt=0).quarantined(), limit)
    late = rows.leased().filter(state_locked_until__lte=columns.after(-LATE))
    yield "lease ran out", _pks(late.order_by("state_locked_until"), limit)
    yield "failing", failing_pks(rows)[:limit]
    yield "stuck", [one.pk for one in depths(rows).stuck]
    waited = line.annotate(stator_since=place_in_line()).filter(stator_since__lte=columns.after(-OVERDUE))
    yield "overdue", _pks(waited, limit)
    for state in graph.automatic_states:
        due = {"state_next_attempt__lte": columns.after(-OVERDUE), "state": state.name}
        resting = rows.filter(state_ready=False, state_claim=None, **due).order_by("state_next_attempt")
        yield "overdue", _pks(resting, limit)


def _pks(rows: QuerySet[Model], limit: int) -> list[object]:
    return list(rows.values_list("pk", flat=True)[:limit])
