"""The endpoint that sends an event, and the events of an object in its answer."""

from typing import Any

from ninja import Schema
from pydantic import JsonValue

from stator import EventRefused, Sender
from stator.models import StatorModel, state_of
from tasks.api.access import OBJECTS, ApiRequest
from tasks.api.documents import Endpoints
from tasks.api.errors import ANSWERS, Conflict, Forbidden
from tasks.api.object_schemas import ObjectOut, object_out
from tasks.api.objects import add_details, object_of
from tasks.api.schemas import Body, described
from tasks.extensions.api.models import Consumer

router = Endpoints(tags=["objects"])


class EventIn(Body):
    """What an event carries."""

    payload: JsonValue = described("Validated by the form of the event.", {"note": "ok"}, None)
    key: str = described("A key that the consumer has used before changes nothing.", "mail-17", "", max_length=100)


class SentOut(Schema):
    """What became of an event, and the object after it."""

    outcome: str = described("moved, ready, counted, kept or repeated.", "moved")
    missing: int = described("How many further senders it takes.", 0)
    note: str = described("What is odd about a repeated event: it had another payload.", "", "")
    object: ObjectOut


@router.at("POST", "objects/{label}/{pk}/events/{name}", OBJECTS, SentOut, "Send an event to an object", 409)
def send_event(request: ApiRequest, label: str, pk: str, name: str, payload: EventIn) -> dict[str, object]:
    """Send an event that the token lists, under the name of its consumer; 409 `event_refused` says why it is not taken.

    With a `key` the request can be repeated: the object takes each key of a consumer once.
    """
    row = object_of(request.auth, label, pk)
    if not request.auth.may_send(label, name):
        raise Forbidden(f"this token may not send {name!r} to {label}")
    sent = row.stator.send(name, payload.payload, by=_sender(request.auth), key=payload.key)
    return {"outcome": sent.outcome, "missing": sent.missing, "note": sent.note, "object": object_out(row)}


def _sender(consumer: Consumer) -> Sender:
    return Sender(consumer.name, permitted=True)


def _taken(row: StatorModel, consumer: Consumer) -> list[Any]:
    """Return the events that an object takes and that the consumer may send."""
    state, label = state_of(row), row._meta.label_lower
    return [event for event in state.events.values() if consumer.may_send(label, event.name)] if state else []


def _events(row: StatorModel, consumer: Consumer) -> list[dict[str, object]]:
    return [
        {"name": event.name, "to": event.target.name if event.target else "", "count": event.needed(lambda: row)}
        for event in _taken(row, consumer)
    ]


def _available(row: StatorModel, consumer: Consumer) -> list[str]:
    available = row.stator.available(_sender(consumer))
    return [event.name for event in _taken(row, consumer) if event.name in available]


add_details("events", _events)
add_details("available", _available)
ANSWERS[EventRefused] = lambda error: Conflict(str(error), "event_refused")
