"""Endpoints for queues (list, create, configure, pause) and for health, with their schemas; durations in seconds."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest
from ninja import Query, Schema
from ninja.responses import Status
from pydantic import AwareDatetime, Field

from tasks.api.access import CONFIGURE, QUERY, ApiRequest, page_of, queue_of
from tasks.api.documents import Endpoints, responses
from tasks.api.errors import Conflict, Forbidden
from tasks.api.schemas import MAX_ON_PAGE, Body, Definition, HealthOut, described, showing, with_fields
from tasks.models import Queue
from tasks.queue.actions import MAX_LISTED
from tasks.queue.rules import RULES, QueueRule
from tasks.rows.databases import home

Action = Annotated[str, Field(min_length=1, max_length=200)]


def _field_of(rule: QueueRule) -> Definition:
    own: dict[str, Any] = {"description": rule.says, "examples": [rule.example]}
    if rule.is_number:
        kind: Any = Annotated[rule.kind, Field(ge=rule.least, le=rule.most)]
        return kind | None, Field(None, **own)
    if rule.kind is bool:
        return bool, Field(False, **own)
    own["description"] += " Over HTTP, names can only be removed."
    return list[Action], Field([], max_length=MAX_LISTED, **own)


@partial(with_fields, {name: _field_of(rule) for name, rule in RULES.items()})
class QueueSettings(Body):
    """Rules for tasks that set no value of their own; null: the project's setting."""


class QueueIn(QueueSettings):
    """A queue to create. Its kind, its exclusive key and ``spread`` cannot be changed later."""

    name: str = described("Its name.", "encode", min_length=1, max_length=100, pattern=r"^\w[\w.:-]*$")
    kind: Queue.Kind = described(
        "Whether at most one task runs for each value of the exclusive key.", "exclusive", Queue.Kind.SIMPLE
    )
    exclusive_key: str = described(
        "At most one task runs for each value of this metadata.", "title", "", max_length=100
    )
    spread: bool = described("Whether its tasks are in all parts of a table of tasks that is divided.", False, False)


@showing(QueueIn)
class QueueOut(Schema):
    """A queue."""

    name: str = Field(examples=["encode"])
    publish_paused: bool = Field(examples=[False])
    claim_paused: bool = Field(examples=[False])
    pause_reason: str = Field(examples=[""])
    pause_author: str = Field(examples=[""])
    pause_until: datetime | None = Field(examples=[None])
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])


class QueuesOut(Schema):
    """A page of queues; ``next`` goes into ``after`` for the next page."""

    queues: list[QueueOut]
    next: str | None = Field(examples=[None])


class DeletedOut(Schema):
    """The queue that was deleted."""

    deleted: str = described("Its name.", "encode")
    tasks: int = described("How many tasks were deleted with it.", 0)


class PauseIn(Body):
    """The new pauses of a queue, which replace the old ones; an empty object resumes it."""

    publish: bool = described("Refuse new tasks; workers go on.", False, False)
    claim: bool = described("Let no tasks be claimed; running tasks may finish.", True, False)
    reason: str = Field("", max_length=200, examples=["the disk is full"])
    until: AwareDatetime | None = described("When the pauses end by themselves.", "2030-01-31T12:00:00Z", None)


router = Endpoints(tags=["queues"])

# The most tasks that one request deletes with their queue.
MAX_DELETED = 10_000


# Some load balancers send HEAD.
HEALTH = responses(HealthOut)


@router.api_operation(["HEAD"], "health", response=HEALTH, include_in_schema=False)
@router.get("health", response=HEALTH, operation_id="health", summary="Check the server and its database")
def health(request: HttpRequest) -> dict[str, object]:
    """Needs no token and shows no data. `HEAD` works as well."""
    connection.ensure_connection()
    Queue.objects.order_by().exists()
    return {"status": "ok"}


@router.at("GET", "queues", QUERY, QueuesOut, "List queues")
def list_queues(
    request: ApiRequest,
    after: str = Query("", example="encode"),
    limit: int = Query(100, ge=1, le=MAX_ON_PAGE, example=100),
) -> dict[str, object]:
    """List the queues that this token may use, by name."""
    page, following = page_of(request.auth.reach().filter(name__gt=after), limit, "name")
    return {"queues": page, "next": following}


@router.at("POST", "queues", CONFIGURE, QueueOut, "Create a queue", 409, statuses=[201])
def create_queue(request: ApiRequest, payload: QueueIn) -> Status[Queue]:
    """Needs a token for all queues. Kind, exclusive key and ``spread`` cannot be changed later."""
    if not request.auth.all_queues:
        raise Forbidden("this token is not for all queues, so it cannot create one")
    values = payload.dict()
    _refuse_more(values["http_actions"], [])
    try:
        with transaction.atomic(using=home()):
            queue = Queue.objects.create(**values)
    except IntegrityError as error:
        raise Conflict(f"there is a queue {payload.name!r} already", "exists") from error
    queue.refresh_from_db(queue._state.db)
    return Status(201, queue)


@router.at("GET", "queues/{queue}", QUERY, QueueOut, "Show a queue")
def show_queue(request: ApiRequest, queue: str) -> Queue:
    """Return the rules and the pauses of a queue."""
    return queue_of(request.auth, queue)


@router.at("PATCH", "queues/{queue}", CONFIGURE, QueueOut, "Configure a queue")
def configure_queue(request: ApiRequest, queue: str, payload: QueueSettings) -> Queue:
    """Change the given rules; the others stay. Changes apply from the next publication and the next claim.

    `http_actions` can only be made shorter. Otherwise a token that may configure could run any code of the site.
    """
    own = queue_of(request.auth, queue)
    changes = payload.dict(exclude_unset=True)
    with transaction.atomic(using=own._state.db):
        # Locked, so that an action that is removed from the list at this moment does not come back.
        own.lock()
        own.refresh_from_db(own._state.db, ["http_actions"])
        _refuse_more(changes.get("http_actions", []), own.http_actions)
        for name, value in changes.items():
            setattr(own, name, value)
        own.save(update_fields=list(changes))
    return own


@router.at("DELETE", "queues/{queue}", CONFIGURE, DeletedOut, "Delete a queue", 409)
def delete_queue(request: ApiRequest, queue: str, tasks: bool = Query(False, example=True)) -> dict[str, object]:
    """Needs a token for all queues. With `tasks=true` its tasks are deleted with it, 10,000 at most.

    Otherwise, and if there are more, it answers 409 `not_empty`. Workers that hold one of the tasks lose their claims.
    """
    if not request.auth.all_queues:
        raise Forbidden("this token is not for all queues, so it cannot delete one")
    own = queue_of(request.auth, queue)
    most = MAX_DELETED if tasks else 0
    count = own.tasks.order_by()[: most + 1].count()
    if count > most:
        remedy = (
            "wait until their retention is over, or delete the queue in the admin"
            if tasks
            else "delete them with tasks=true, or cancel them and wait for their retention"
        )
        contents = f"more than {most:,} tasks" if tasks else "tasks"
        raise Conflict(f"queue {own.name} has {contents}; {remedy}", "not_empty")
    own.delete()
    return {"deleted": queue, "tasks": count}


@router.at("PUT", "queues/{queue}/pause", CONFIGURE, QueueOut, "Pause a queue")
def pause_queue(request: ApiRequest, queue: str, payload: PauseIn) -> Queue:
    """Set both pauses: a pause that is not given ends, so an empty object resumes the queue."""
    own = queue_of(request.auth, queue)
    if payload.publish or payload.claim:
        own.pause(**payload.dict(), author=request.auth.name)
    else:
        own.resume(author=request.auth.name)
    return own


def _refuse_more(names: list[str], listed: list[str]) -> None:
    for name in names:
        if name not in listed:
            raise Forbidden(
                f"http_actions: {name!r} cannot be added over HTTP; "
                "add it in Python, in the admin, or with: manage.py tasks queue set"
            )
