"""The objects that objects of a model wait for: their states, how many objects wait for each, and how long."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import Model, QuerySet

from stator.extensions.related.circles import circle_through
from stator.extensions.related.waits import Wait, waits_of
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.querysets import OperatorQuerySet
from stator.rows import columns, due_times
from stator.rows.clock import Now
from stator.rows.meta import graph_of
from stator.rows.problem import FORGOTTEN
from stator.rows.state_column import state_field
from stator.survey.numbers import Depths

# How many waiting rows are read of each state, the longest-waiting first.
READ = 1000

# Awaited objects of which is found out whether they wait in a circle.
FOLLOWED = 20


@dataclass(slots=True)
class AwaitedObject:
    """Rows in one state that wait for one object of another model: ``count`` of them, the first for ``longest`` s.

    ``model``, ``pk`` and ``state`` are of the awaited object; ``until``: the states that end the waiting. ``ended``: it
    is in a terminal state, so it never gets to one of them. ``circle``: the objects that wait for each other, it among
    them, each as its model and its key.
    """

    model: type[Model]
    pk: object
    state: str
    until: tuple[str, ...]
    waiting_in: str
    ended: bool
    count: int = 0
    more: bool = False
    longest: float = 0.0
    circle: list[tuple[type[Model], object]] = field(default_factory=list)


def waiters(rows: OperatorQuerySet, depths: Depths) -> list[AwaitedObject]:
    """Return the objects that parked rows wait for, most waited for first; one statement for each state with any.

    Index ``st_rest``.
    """
    model: type[Model] = rows.model
    waits, states = waits_of(model), [one.state for one in depths.automatic if one.state and one.resting]
    awaited = [one for state in states for one in _in_state(rows, state, waits)] if waits else []
    awaited.sort(key=lambda one: (-one.count, -one.longest))
    # What ended, or waits for nothing itself, is in no circle.
    for one in [one for one in awaited if not one.ended and waits_of(one.model)][:FOLLOWED]:
        one.circle = circle_through(one.model, one.pk, str(rows.db))
    return awaited


def waiting_in_vain(rows: OperatorQuerySet) -> Iterator[QuerySet[Model]]:
    """Yield, for each automatic state, the rows among the first that wait for an ended object, or for too long."""
    model: type[Model] = rows.model
    for state in graph_of(model).automatic_states if waits_of(model) else ():
        parked = _parked(rows, state)
        some = rows.filter(pk__in=parked.values("pk")[:READ])
        yield some.filter(state_changed__lte=columns.after(-FORGOTTEN))
        for wait in waits_of(model):
            ends = {str(each) for each in graph_of(wait.awaited).terminal_states}.difference(wait.until)
            yield some.annotate(stator_awaited=wait.state(some)).filter(stator_awaited__in=sorted(ends))


def _parked(rows: OperatorQuerySet, state: State) -> OperatorQuerySet:
    parked = rows.filter(due_times.parked(), **state_field(rows.model).at(state))
    return parked.order_by("state_next_attempt", "state_changed")


def _in_state(rows: OperatorQuerySet, state: State, waits: tuple[Wait, ...]) -> Iterator[AwaitedObject]:
    names = [name for wait in waits for name in (wait.key, f"stator_awaited_{wait.field}")]
    parked = _parked(rows, state)
    parked = parked.annotate(stator_now=Now(), **{f"stator_awaited_{w.field}": w.state(parked) for w in waits})
    read = list(parked.values_list("state_changed", "stator_now", *names)[:READ])
    awaited: dict[tuple[str, object], AwaitedObject] = {}
    for changed, now, *values in read:
        for wait, pk, of in zip(waits, values[::2], values[1::2], strict=True):
            if of is None or of in wait.until:
                continue
            if (one := awaited.get((wait.field, pk))) is None:
                one = awaited[wait.field, pk] = _begin(wait, pk, of, state)
            one.count, one.more = one.count + 1, len(read) == READ
            one.longest = max(one.longest, seconds_of(now - changed))
    yield from awaited.values()


def _begin(wait: Wait, pk: object, state: str, waiting_in: State) -> AwaitedObject:
    known = graph_of(wait.awaited).states.get(state)
    return AwaitedObject(wait.awaited, pk, state, wait.until, waiting_in.name, known is not None and known.terminal)
