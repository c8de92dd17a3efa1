"""Endpoints for managed objects: where they are, why, and the events that a token may send to them."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import router as databases
from django.db.models import QuerySet
from ninja import Query

from stator import Sender
from stator.models import StatorModel, key_of, state_field, state_of
from stator.rows.readings import read
from tasks.api.access import OBJECTS, ApiRequest, note_progress, page_of
from tasks.api.bodies import check
from tasks.api.documents import Endpoints
from tasks.api.errors import Forbidden, NotFound
from tasks.api.object_schemas import (
    EventIn,
    HappenedOut,
    ObjectErrorOut,
    ObjectFilters,
    ObjectsOut,
    ObjectWithHistoryOut,
    SentOut,
    object_out,
)
from tasks.queue.consumers import Consumer

router = Endpoints(tags=["objects"])

# Entries of the history in an answer.
MAX_HISTORY = 50

# Returns a part of the answer for an object.
Details = Callable[[StatorModel], object]

# The parts that extensions add, by name.
_details: dict[str, Details] = {}


def add_details(name: str, details: Details) -> None:
    """Add a part to the answer for an object; the endpoints of an extension call this."""
    _details[name] = details


@router.at("GET", "objects/{label}", OBJECTS, ObjectsOut, "List objects")
def list_objects(request: ApiRequest, label: str, filters: Query[ObjectFilters]) -> dict[str, object]:
    """List the objects of a model that the token names, by key."""
    rows = _rows(_model(request.auth, label))
    if filters.after:
        rows = rows.filter(pk__gt=_key(rows, filters.after))
    if filters.state:
        rows = rows.filter(**state_field(rows.model).among(filters.state))
    page, following = page_of(rows, filters.limit)
    note_progress(page, rows.db)
    return {"objects": [object_out(row) for row in page], "next": following}


@router.at("GET", "objects/{label}/{pk}", OBJECTS, ObjectWithHistoryOut, "Show an object")
def show_object(request: ApiRequest, label: str, pk: str) -> dict[str, object]:
    """Return where an object is, why it does not move, the events that it takes from this token, and its history."""
    row = _row(request.auth, label, pk)
    note_progress([row], row._state.db)
    state = state_of(row)
    events = [event for event in state.events.values() if request.auth.may_send(label, event.name)] if state else []
    available = row.stator.available(_sender(request.auth))
    using, model = str(row._state.db), type(row)
    report = read("report", using, model, row.pk, otherwise=None)
    kept = read("entries", using, model, row.pk, MAX_HISTORY, otherwise=())
    return {
        **object_out(row),
        # What extensions add.
        "steps": [],
        **{name: details(row) for name, details in _details.items()},
        "reasons": [reason.as_dict() for reason in row.explain()],
        "error": {name: getattr(report, name) for name in ObjectErrorOut.model_fields} if _is_error(report) else None,
        "events": [
            {"name": event.name, "to": event.target.name if event.target else "", "count": event.needed(lambda: row)}
            for event in events
        ],
        "available": [event.name for event in events if event.name in available],
        "history": [{name: getattr(one, name) for name in HappenedOut.model_fields} for one in kept],
    }


@router.at("POST", "objects/{label}/{pk}/events/{name}", OBJECTS, SentOut, "Send an event to an object", 409)
def send_event(request: ApiRequest, label: str, pk: str, name: str, payload: EventIn) -> dict[str, object]:
    """Send an event that the token lists, under the name of its consumer; 409 `event_refused` says why it is not taken.

    With a `key` the request can be repeated: the object takes each key of a consumer once.
    """
    row = _row(request.auth, label, pk)
    if not request.auth.may_send(label, name):
        raise Forbidden(f"this token may not send {name!r} to {label}")
    sent = row.stator.send(name, payload.payload, by=_sender(request.auth), key=payload.key)
    return {"outcome": sent.outcome, "missing": sent.missing, "note": sent.note, "object": object_out(row)}


def _is_error(report: Any) -> bool:
    return report is not None and bool(report.error)


def _sender(consumer: Consumer) -> Sender:
    return Sender(consumer.name, permitted=True)


def _model(consumer: Consumer, label: str) -> type[StatorModel]:
    """Return the model; raise ``NotFound`` if the token does not name it, whether it exists or not."""
    check(label)
    for model in StatorModel.subclasses:
        if model._meta.label_lower == label.lower() and consumer.may_see(label):
            return model
    raise NotFound(f"there is no model {label!r} that this token may see")


def _rows(model: type[StatorModel]) -> QuerySet[Any]:
    return QuerySet(model, using=databases.db_for_write(model))


def _row(consumer: Consumer, label: str, pk: str) -> Any:
    rows = _rows(_model(consumer, label))
    found = rows.filter(pk=_key(rows, pk)).first()
    if found is None:
        raise NotFound(f"there is no {label} {pk}")
    return found


def _key(rows: QuerySet[Any], text: str) -> object:
    """Return a primary key from its text; raise ``NotFound`` if it cannot be one."""
    check(text)
    try:
        value = key_of(rows.model, text)
        rows.filter(pk=value).query.sql_with_params()
    except (ValidationError, ValueError, OverflowError, EmptyResultSet) as error:
        raise NotFound(f"{text!r} is not a key of {rows.model._meta.label}") from error
    return value
