"""Endpoints for batches: open, show, close, cancel, and requeue what failed."""

from ninja import Query
from ninja.responses import Status

from stator.texts import JsonObject
from tasks.api.access import PUBLISH, QUERY, ApiRequest, batch_of, queue_of
from tasks.api.documents import Endpoints
from tasks.api.schemas import BatchIn, BatchOut
from tasks.models import Batch, Task
from tasks.querysets import FASTEST, MAX_TASKS, SLOWEST
from tasks.queue.actions import refuse_to_change_over_http
from tasks.rows.databases import home

router = Endpoints(tags=["batches"])


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


def _out(batch: Batch) -> JsonObject:
    own = {"queue": batch.queue.name, "counts": batch.counts(), "progress": batch.progress.as_dict()}
    return {name: own[name] if name in own else getattr(batch, name) for name in BatchOut.model_fields}
