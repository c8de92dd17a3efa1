"""The moves by events, for the flow of models over time."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from stator.extensions.events.models import Event
from stator.rows.readings import READINGS, Reading
from stator.survey.flow import Flow

# Moves that are counted, of all models.
MAX_EVENTS = 10_000


def connect() -> None:
    """Offer the reading."""
    READINGS["moves"] = Reading(Event, _read_moves)


def _read_moves(using: str, flows: Mapping[str, Flow], now: datetime) -> None:
    """Add the moves by events in the last sixty minutes, which are no attempts."""
    sent = Event.objects.using(using).filter(at__gte=now - timedelta(hours=1), model_label__in=list(flows))
    moves = sent.exclude(to="").order_by("-at").values_list("model_label", "source", "to")[:MAX_EVENTS]
    for (label, source, to), count in Counter(moves).items():
        flows[label].edges[source, to] += count
