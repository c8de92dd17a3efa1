"""Endpoints for batches: open, show, close, cancel, and requeue what failed."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from ninja import Field, Query, Schema
from ninja.responses import Status

from stator.texts import JsonObject
from tasks.api.access import PUBLISH, QUERY, ApiRequest, queue_of
from tasks.api.documents import Endpoints
from tasks.api.errors import NotFound
from tasks.api.schemas import BIGINT, Body, ProgressOut, TaskIn, described
from tasks.extensions.api.models import Consumer
from tasks.extensions.batches.joining import joining
from tasks.models import Batch, Task
from tasks.querysets import FASTEST, MAX_TASKS, SLOWEST
from tasks.queue.actions import refuse_to_change_over_http
from tasks.queue.publishing import Publish
from tasks.rows.databases import home

router = Endpoints(tags=["batches"])

JOINS = "The number of a batch that it joins."
TOGETHER = "A new batch, which ends with the last of these tasks, or the number of one to join."
GIVEN = "The number of the batch, if one was given."


class BatchIn(Body):
    """A new batch."""

    key: str | None = described(
        "A queue has at most one batch for each key.", "album-7", None, min_length=1, max_length=200
    )
    on_done: TaskIn | None = described(
        "The task to publish when no task is left and none is errored; without a key.", {"action": "resize"}, None
    )
    on_failed: TaskIn | None = described("The task to publish when no task is left and some are errored.", None, None)
    on_first_failure: TaskIn | None = described("The task to publish once, when a first task is errored.", None, None)

    def of_batch(self) -> JsonObject:
        """Return the arguments of a batch, whose actions have only what was given."""
        return {"over_http": True, **self.dict(exclude_unset=True)}


class CountsOut(Schema):
    """The tasks of a batch by status, up to a million of each."""

    total: int = Field(examples=[1000])
    pending: int = described("Not claimed; some may be due later.", 400)
    running: int = Field(examples=[10])
    completed: int = Field(examples=[580])
    canceled: int = Field(examples=[0])
    errored: int = Field(examples=[10])


class BatchOut(Schema):
    """A batch, and how far it is."""

    id: int = Field(examples=[17])
    queue: str = Field(examples=["encode"])
    key: str | None = Field(examples=["album-7"])
    state: str = described("filling, running, ending, done, failed or canceled.", "running")
    counts: CountsOut
    progress: ProgressOut
    on_done: dict[str, Any] | None = Field(examples=[{"action": "resize"}])
    on_failed: dict[str, Any] | None = Field(examples=[None])
    on_first_failure: dict[str, Any] | None = Field(examples=[None])
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])


@router.at("POST", "queues/{queue}/batches", PUBLISH, BatchOut, "Open a batch", 409, statuses=[201])
def open_batch(request: ApiRequest, queue: str, payload: BatchIn) -> Status[JsonObject]:
    """Open a batch, which takes tasks of several requests and does not end before it is closed.

    A batch of the same key that exists is returned as it is.
    """
    return Status(201, _out(Batch.open(queue_of(request.auth, queue), **payload.of_batch())))


@router.at("GET", "batches/{int:number}", QUERY, BatchOut, "Show a batch")
def show_batch(request: ApiRequest, number: int) -> JsonObject:
    """Return where a batch is, and how many of its tasks have which status."""
    return _out(batch_of(request.auth, number))


@router.at("POST", "batches/{int:number}/close", PUBLISH, BatchOut, "Close a batch")
def close_batch(request: ApiRequest, number: int) -> JsonObject:
    """Let an open batch end with its last task. A repetition changes nothing."""
    batch = batch_of(request.auth, number)
    batch.close()
    return _out(batch)


@router.at("POST", "batches/{int:number}/cancel", PUBLISH, BatchOut, "Cancel a batch", 409)
def cancel_batch(
    request: ApiRequest,
    number: int,
    running: bool = Query(False, example=True),
    reason: str = Query("", max_length=500, example="ordered twice"),
) -> JsonObject:
    """Cancel a batch with its waiting tasks, and with `running=true` its claimed tasks. It publishes nothing."""
    batch = batch_of(request.auth, number)
    batch.cancel(reason, actor=request.auth.name, running=running)
    return _out(batch)


@router.at("POST", "batches/{int:number}/requeue", PUBLISH, BatchOut, "Requeue what failed in a batch", 409)
def requeue_batch(
    request: ApiRequest,
    number: int,
    per_minute: float | None = Query(None, ge=SLOWEST, le=FASTEST, example=60),
    start_over: bool = Query(False, example=True),
) -> JsonObject:
    """Requeue up to 10,000 dead letters of a batch with all their attempts; a failed batch runs again.

    Recorded steps stay, except with `start_over=true`.
    """
    batch = batch_of(request.auth, number)
    dead = Task.objects.using(home()).filter(batch=batch).dead_letters().only("action", "elsewhere_only")
    refuse_to_change_over_http(batch.queue, dead[:MAX_TASKS])
    batch.requeue(actor=request.auth.name, per_minute=per_minute, start_over=start_over)
    return _out(batch)


def batch_of(consumer: Consumer, number: int) -> Batch:
    """Return the batch with this number; raise ``NotFound`` unless the consumer may use its queue."""
    rows: QuerySet[Batch] = QuerySet(Batch, using=home()).select_related("queue").filter(queue__in=consumer.reach())
    batch = rows.filter(pk=number).first() if number < BIGINT else None
    if batch is None:
        raise NotFound(f"there is no batch {number}")
    return batch


def publishing_into(consumer: Consumer, given: BatchIn | int | None) -> Publish | None:
    """Return what publishes into the batch that a request gives; None if it gives none."""
    batch = Batch(**given.of_batch()) if isinstance(given, BatchIn) else given and batch_of(consumer, given)
    return joining(batch or None)


def _out(batch: Batch) -> JsonObject:
    own = {"queue": batch.queue.name, "counts": batch.counts(), "progress": batch.progress.as_dict()}
    return {name: own[name] if name in own else getattr(batch, name) for name in BatchOut.model_fields}
