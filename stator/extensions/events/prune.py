"""The end of events that are not in force."""

from django.db.models import Q, QuerySet

from stator.db.sweeps import Row, Sweep, with_rows
from stator.extensions.events.models import LEFT, Event
from stator.rows import columns
from stator.rows.clock import Now
from stator.scopes import entered


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
        found = list(old.order_by("at", "pk").only("model_label", "object_pk", "at", "version", "life")[:limit])
        if len(found) == limit:
            self.last[place] = found[-1].at, found[-1].pk
        over = [one.pk for _, some in with_rows(found, alias) for one, row in some if not _keeps(row, one)]
        return events.filter(pk__in=over).delete()[0] if over else 0


def _keeps(row: Row | None, event: Event) -> bool:
    if row is None:
        return False
    if event.version == LEFT:
        return row.life.is_of(event.life)
    return not row.rests or row.life.keeps(event.life, event.version)


OLD_EVENTS = OldEvents()
