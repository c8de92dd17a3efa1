"""What metrics and the overview count of events."""

from collections import Counter
from collections.abc import Iterator

from stator.extensions.events.events import refusals
from stator.extensions.events.models import Event
from stator.extensions.problems.surveyed import Gauge, Survey
from stator.rows.columns import after
from stator.seams import ProcessCounts

# Events of the last hour that are counted, of all models of a database.
MAX_EVENTS = 10_000


def _awaiting(survey: Survey) -> Iterator[tuple[tuple[str, str], float]]:
    for label, one in survey.models.items():
        for state in one.depths.states.values():
            for name in state.state.events if state.state and not state.state.automatic else ():
                yield (label, name), state.count


def _sent(survey: Survey) -> Iterator[tuple[tuple[str, str], float]]:
    sent = Event.objects.using(survey.using).filter(at__gte=after(-3600.0)).order_by("-at")
    yield from Counter(sent.values_list("model_label", "name")[:MAX_EVENTS]).items()


AWAITING = Gauge(
    "stator_awaiting_event", ("model", "event"),
    "Objects that wait for the event and not for a worker, counted up to 10,001 in each state.", _awaiting,
)  # fmt: skip
SENT = Gauge(
    "stator_events", ("model", "event"),
    "Events that were sent in the last hour, among the latest 10,000 of the database.", _sent,
)  # fmt: skip
REFUSED = ProcessCounts(
    "stator_events_refused_total", "Events that this process refused.", "event", refusals
)  # fmt: skip
