"""What moves do for events: rows get the events that were kept for the state, and states that were left are marked.

Events that are no longer in force are deleted by a sweep.
"""

from collections.abc import Sequence

from django.db.models import Model, Q, QuerySet

from stator.db.own_tables import Row, Sweep, with_rows
from stator.extensions.events.events import apply_event, note_event
from stator.extensions.events.models import LEFT, Event, events_of
from stator.graph.states import State
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.followers import Follower, Left
from stator.rows.keys import key_of
from stator.rows.locking import BATCH, Locked, in_batches
from stator.rows.meta import graph_of
from stator.scopes import entered


class KeptEvents(Follower):
    """Gives rows that enter a state all events that were kept for it, in their order.

    An event is kept only before the first state that takes it, so a row that leaves such a state gets a mark.
    """

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        self._graph = graph_of(model)
        self._kept = {state.name: _kept_names(state) for state in self._graph.states.values()}
        self.entries = self.exits = frozenset(name for name, events in self._kept.items() if events)

    def left(self, using: str, before: Sequence[Left]) -> None:
        """Note which objects have left a state whose events are kept only before it."""
        label = self.model._meta.label_lower
        marks = [
            Event(
                model_label=label, object_pk=str(each.pk), name=name, version=LEFT, voter="", source=str(each.state),
                life=each.life.first,
            )
            for each in before
            for name in self._kept[str(each.state)]
        ]  # fmt: skip
        if marks:
            # Those of objects that return are there.
            Event.objects.using(using).bulk_create(marks, ignore_conflicts=True, batch_size=BATCH)

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Give the objects their events, page after page."""
        kept = events_of(self.model, using).filter(name__in=self._kept[state], version=None, until__gt=Now())
        mine, last = kept.filter(object_pk__in=[str(pk) for pk in pks]).order_by("pk"), 0
        while page := list(mine.filter(pk__gt=last)[:BATCH]):
            for event in page:
                _give(self.model, using, self._graph.states[state], event)
            last = page[-1].pk


def _kept_names(state: State) -> list[str]:
    """Return the events of a state that are kept if they come before the first state that takes them."""
    return [name for name in state.events if state.graph and name in state.graph.kept_names]


def _give(owner: type[Model], using: str, state: State, event: Event) -> None:
    """Give an object a kept event of its life; it is over if an earlier event has moved the object on."""

    def take(alias: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        [locked] = before
        mine = events_of(owner, alias).filter(pk=event.pk, version=None)
        if locked.state == state.name and locked.life.is_of(event.life):
            # The object may have left the state and returned, with the events that were kept for it.
            if mine.exists():
                apply_event(owner, alias, locked, state.events[event.name], event)
        elif mine.delete()[0] and locked.life.is_of(event.life):
            note_event(owner, alias, locked.pk, event, f"over: {locked.state} does not take it")
        return 1

    in_batches(QuerySet(owner, using=using).filter(pk=key_of(owner, event.object_pk)), take)


class OldEvents(Sweep):
    """Deletes events past their retention that are not in force. Index ``stator_event_at``.

    In force are events of the present visit and wish of an object, events that are kept, and the marks of states that
    an object has left in this life.
    """

    def part(self, alias: str, limit: int, age: float) -> int:
        """Examine the next events by age."""
        place = alias, entered()
        events: QuerySet[Event] = QuerySet(Event, using=alias)
        old = events.filter(at__lt=columns.after(-age)).exclude(version=None, until__gt=Now())
        if place in self.last:
            at, last = self.last.pop(place)
            old = old.filter(Q(at__gt=at) | Q(at=at, pk__gt=last), at__gte=at)
        read = list(old.order_by("at", "pk").only("model_label", "object_pk", "at", "version", "life")[:limit])
        if len(read) == limit:
            self.last[place] = read[-1].at, read[-1].pk
        over = [one.pk for _, some in with_rows(read, alias) for one, row in some if not _keeps(row, one)]
        return events.filter(pk__in=over).delete()[0] if over else 0


def _keeps(row: Row | None, event: Event) -> bool:
    if row is None:
        return False
    if event.version == LEFT:
        return row.life.is_of(event.life)
    return not row.rests or row.life.keeps(event.life, event.version)


OLD_EVENTS = OldEvents()
