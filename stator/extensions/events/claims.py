"""The events that claims bring along: those of their objects in this state and on the way into it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Max

from stator.db.brought import Bring
from stator.extensions.events.models import HAPPENED, Event, events_of, events_of_visit

if TYPE_CHECKING:
    from stator.db.interface import Claim, Operations

# How many events are read at once, of all objects that are claimed together.
MAX_EVENTS = 1000


class GotEvents:
    """What a claim has for its events."""

    __slots__ = ()

    happened = HAPPENED

    @property
    def events(self: Any) -> tuple[Event, ...]:
        if self.happened is None:
            operations = self.operations
            mine = events_of_visit(operations.model, operations.alias, self.pk, self.life)
            self.happened = tuple(mine.filter(pk__lte=self.event.pk) if self.event else mine)
        happened: tuple[Event, ...] = self.happened
        return happened


def bring_events(store: "Operations") -> Bring | None:
    """Return what reads the events of claimed objects; None if their graph has none."""
    return _read if store.graph.event_names else None


def _read(claims: "Sequence[Claim]") -> None:
    """Read the events of objects that are claimed together.

    If they have more than ``MAX_EVENTS``, the latest of each is read. The others are read when a handler asks for them,
    or now if it runs on the event loop, which cannot wait for them.
    """
    operations = claims[0].operations
    held = {(str(claim.pk), claim.life.visit): claim for claim in claims}
    mine = events_of(operations.model, operations.alias).filter(
        object_pk__in=[pk for pk, _ in held], version__in={version for _, version in held}
    )
    with operations.reading():
        latest_events = list(mine.order_by("pk")[: MAX_EVENTS + 1])
        many = len(latest_events) > MAX_EVENTS
        if many:
            visits = mine.order_by().values("object_pk", "version", "life")
            latest = visits.annotate(latest=Max("pk")).values("latest")
            latest_events = list(Event.objects.using(operations.alias).filter(pk__in=latest))
        by_visit: dict[tuple[str, int | None, int], list[Event]] = defaultdict(list)
        for event in latest_events:
            by_visit[event.object_pk, event.version, event.life].append(event)
        for (pk, visit), claim in held.items():
            own = tuple(by_visit.get((pk, visit, claim.life.number), ()))
            claim.event, claim.happened = (own[-1], None if many else own) if own else (None, ())
            if many and claim.state.is_async:
                claim.happened = claim.events
