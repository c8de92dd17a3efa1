"""Endpoints for managed objects: where they are, and why."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import router as databases
from django.db.models import QuerySet
from ninja import Query

from stator.models import StatorModel, key_of, state_field
from stator.rows.readings import read
from tasks.api.access import OBJECTS, ApiRequest, note_progress, page_of
from tasks.api.bodies import check
from tasks.api.documents import Endpoints
from tasks.api.errors import NotFound
from tasks.api.object_schemas import (
    HappenedOut,
    ObjectErrorOut,
    ObjectFilters,
    ObjectsOut,
    ObjectWithHistoryOut,
    object_out,
)
from tasks.extensions.api.models import Consumer

router = Endpoints(tags=["objects"])

# Entries of the history in an answer.
MAX_HISTORY = 50

# Returns a part of the answer for an object to a consumer.
Details = Callable[[StatorModel, Consumer], object]

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
    row = object_of(request.auth, label, pk)
    note_progress([row], str(row._state.db))
    using, model = str(row._state.db), type(row)
    report = read("report", using, model, row.pk, otherwise=None)
    kept = read("entries", using, model, row.pk, MAX_HISTORY, otherwise=())
    return {
        **object_out(row),
        # What extensions add.
        "events": [],
        "available": [],
        "steps": [],
        "reasons": [],
        **{name: details(row, request.auth) for name, details in _details.items()},
        "error": {name: getattr(report, name) for name in ObjectErrorOut.model_fields} if _is_error(report) else None,
        "history": [{name: getattr(one, name) for name in HappenedOut.model_fields} for one in kept],
    }


def _is_error(report: Any) -> bool:
    return report is not None and bool(report.error)


def _model(consumer: Consumer, label: str) -> type[StatorModel]:
    """Return the model; raise ``NotFound`` if the token does not name it, whether it exists or not."""
    check(label)
    for model in StatorModel.subclasses:
        if model._meta.label_lower == label.lower() and consumer.may_see(label):
            return model
    raise NotFound(f"there is no model {label!r} that this token may see")


def _rows(model: type[StatorModel]) -> QuerySet[StatorModel]:
    return QuerySet(model, using=databases.db_for_write(model))


def object_of(consumer: Consumer, label: str, pk: str) -> StatorModel:
    """Return an object; raise ``NotFound`` if there is none that the token may see."""
    rows = _rows(_model(consumer, label))
    instance = rows.filter(pk=_key(rows, pk)).first()
    if instance is None:
        raise NotFound(f"there is no {label} {pk}")
    return instance


def _key(rows: QuerySet[StatorModel], text: str) -> object:
    """Return a primary key from its text; raise ``NotFound`` if it cannot be one."""
    check(text)
    try:
        value = key_of(rows.model, text)
        rows.filter(pk=value).query.sql_with_params()
    except (ValidationError, ValueError, OverflowError, EmptyResultSet) as error:
        raise NotFound(f"{text!r} is not a key of {rows.model._meta.label}") from error
    return value
