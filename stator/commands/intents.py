"""What workers would do to rows: the one answer of ``stator preview`` and of whatever else asks without doing it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F, Model, Q, QuerySet
from django.db.models.expressions import Combinable

from stator.extensions.related.waits import waiting
from stator.graph import State, StateGraph
from stator.rows import columns
from stator.rows.claimable import RESTING
from stator.rows.clock import Now
from stator.rows.dates import deadlines_in, due_since
from stator.rows.due_times import is_due
from stator.rows.edges import condition_of, reason_of
from stator.rows.meta import options_of
from stator.rows.state_column import state_field

# What is done; moves by conditions and deadlines have the words that the history has of them.
ATTEMPTED, RENAMED, TIMES_OUT, DELETED = "attempted", "renamed", "times out", "deleted"

FREE = Q(state_claim=None)


@dataclass(frozen=True, slots=True)
class Intent:
    """What workers would do to the rows of one state that match ``where``, which no worker holds.

    ``source``: the name of the state. ``to``: the state that they enter; "" if a handler decides, or they are deleted.
    ``since``: an expression for when that came to be; None if nothing says it.
    """

    source: str
    what: str
    to: str
    where: Q
    since: Combinable | None = None


def intents(rows: QuerySet[Model], graph: type[StateGraph], max_crashes: int) -> Iterator[Intent]:
    """Yield what workers would do to rows of a model by this graph; of two for one row, they do the first.

    Pauses and limits, which are not of a row, are left out.
    """
    field = state_field(rows.model)
    for former, state in graph.renames.items():
        yield Intent(former, RENAMED, state.name, FREE & Q(**field.at(former, gone=True)))
    deadlines = deadlines_in(rows.model, graph)
    for state in graph.states.values():
        here = FREE & Q(**field.at(state))
        for condition, to in state.conditions:
            yield Intent(state.name, reason_of(condition), to.name, here & condition_of(rows, state, condition))
        for each in deadlines:
            if each.state is state:
                yield Intent(state.name, each.reason, each.to.name, here & Q(each.met(Now())), each.date)
        if state.automatic:
            yield attempt(rows, state, max_crashes, is_due(rows.model))
        yield from _by_age(rows, state, here)


def attempt(rows: QuerySet[Model], state: State, max_crashes: int, due: Q) -> Intent:
    """Return the attempts of rows in an automatic state; ``due``: of which of them."""
    here = FREE & Q(**state_field(rows.model).at(state), state_crashes__lt=max_crashes)
    here &= ~waiting(rows)  # stator.extensions.related
    return Intent(state.name, ATTEMPTED, "", here & due, due_since(rows.model))


def _by_age(rows: QuerySet[Model], state: State, here: Q) -> Iterator[Intent]:
    # What is ready is attempted first; elsewhere the mark says nothing.
    rests = here & RESTING if state.automatic else here
    if state.timeout_state and state.timeout_value:
        yield _after(state.timeout_value, Intent(state.name, TIMES_OUT, state.timeout_state.name, rests))
    if state.delete_after:
        manager = options_of(rows.model).delete_manager
        own = Q(pk__in=getattr(rows.model, manager).using(rows.db).values("pk")) if manager else Q()
        yield _after(state.delete_after, Intent(state.name, DELETED, "", rests & own))


def _after(seconds: float, intent: Intent) -> Intent:
    past = intent.where & Q(state_changed__lte=columns.after(-seconds))
    return Intent(intent.source, intent.what, intent.to, past, F("state_changed") + timedelta(seconds=seconds))
