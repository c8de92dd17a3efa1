"""Publishing tasks, canceling them, and running dead letters again."""

from collections.abc import Sequence
from functools import partial

from django.db.models import prefetch_related_objects
from django.http import HttpResponse
from ninja import Query

from tasks.api.access import PUBLISH, ApiRequest, batch_of, complete, parts, queue_of, task_of
from tasks.api.answers import answer, published_out, task_out
from tasks.api.documents import Endpoints
from tasks.api.rate_limits import row_rates
from tasks.api.schemas import (
    BatchIn,
    OnExistingKeyIn,
    PublishedManyOut,
    PublishedOut,
    PublishIn,
    PublishManyIn,
    TaskChange,
    TaskIn,
    TaskOut,
)
from tasks.conf import load_settings
from tasks.exceptions import MoveRefused
from tasks.extensions.api.models import Consumer
from tasks.models import Batch
from tasks.queue import batches, publishing
from tasks.queue.actions import refuse_to_change_over_http
from tasks.queue.publishing import Published

router = Endpoints(tags=["publishing"])

ON_EXISTING = set(OnExistingKeyIn.model_fields)


@router.at("POST", "queues/{queue}/tasks", PUBLISH, PublishedOut, "Publish a task", 409, 413, statuses=[200, 201])
def publish(request: ApiRequest, queue: str, payload: PublishIn) -> HttpResponse:
    """Answers 201 if the task was inserted, and 200 if the queue already has a task with this key."""
    [published] = _publish(request.auth, queue, [payload], payload)
    return answer(published_out(published), 201 if published.outcome == "inserted" else 200)


@router.at("POST", "queues/{queue}/tasks/bulk", PUBLISH, PublishedManyOut, "Publish many tasks", 409, 413)
def publish_many(request: ApiRequest, queue: str, payload: PublishManyIn) -> HttpResponse:
    """Publish all tasks or none. The results are in the order of the tasks."""
    results = _publish(request.auth, queue, payload.tasks, payload)
    batch = results[0].task.batch_id if payload.batch is not None else None
    return answer({"batch": batch, "results": [published_out(each) for each in results]})


@router.at("POST", "tasks/{int:pk}/cancel", PUBLISH, TaskOut, "Cancel a task", 409, name="cancel_task")
def cancel(
    request: ApiRequest,
    pk: int,
    running: bool = Query(False, example=True),
    reason: str = Query("", max_length=500, example="ordered twice"),
) -> HttpResponse:
    """Cancel a task that waits; with `running=true` also one that a worker holds. A repetition changes nothing.

    The worker that held it gets 409 `lease_lost` at its next heartbeat, and when it ends its claim.
    """
    try:
        task_of(request.auth, pk).cancel(reason, actor=request.auth.name, running=running)
    except MoveRefused:
        if task_of(request.auth, pk).status != "canceled":
            raise
    return answer(task_out(task_of(request.auth, pk)))


@router.at("POST", "tasks/{int:pk}/change", PUBLISH, TaskOut, "Change a task", 409, name="change_task")
def change(request: ApiRequest, pk: int, payload: TaskChange) -> HttpResponse:
    """Change the given options of a task that has not ended, even while a worker holds it. The others stay."""
    task = task_of(request.auth, pk)
    refuse_to_change_over_http(queue_of(request.auth, task.queue.name), [task])
    task.change(**payload.dict(exclude_unset=True))
    return answer(task_out(task_of(request.auth, pk)))


@router.at("POST", "tasks/{int:pk}/requeue", PUBLISH, TaskOut, "Run a dead letter again", 409, name="requeue_task")
def requeue(request: ApiRequest, pk: int, start_over: bool = Query(False, example=True)) -> HttpResponse:
    """Requeue an errored task, with all its attempts. Its recorded steps stay, except with `start_over=true`."""
    dead = task_of(request.auth, pk)
    refuse_to_change_over_http(queue_of(request.auth, dead.queue.name), [dead])
    dead.requeue(actor=request.auth.name, start_over=start_over)
    return answer(task_out(task_of(request.auth, pk)))


def _publish(
    consumer: Consumer, queue: str, tasks: Sequence[TaskIn], payload: PublishIn | PublishManyIn
) -> list[Published]:
    messages = [task.dict(exclude_unset=True, exclude={*ON_EXISTING, "batch"}) for task in tasks]
    options = publishing.OnExistingKey(**{name: getattr(payload, name) for name in ON_EXISTING})
    own, given = queue_of(consumer, queue), payload.batch
    batch = Batch(**given.of_batch()) if isinstance(given, BatchIn) else given and batch_of(consumer, given)
    publish = partial(batches.publish, batch=batch) if batch else publishing.publish
    results = publish(own, messages, options, over_http=True, admit=partial(_take_rows, consumer))
    # Each answer needs the task's parts and attempts: read them once for all tasks.
    published = [each.task for each in results]
    prefetch_related_objects([task for task in published if task.worker_count > 1], parts())
    complete(published, str(own._state.db))
    return results


def _take_rows(consumer: Consumer, rows: int) -> None:
    """Count a request's rows against the consumer's minute, even if some of the tasks exist already."""
    most = consumer.rows_per_minute or load_settings().API_ROWS_PER_MINUTE
    # A request larger than a whole minute's allowance would never succeed.
    publishing.bound_rows(rows, most)
    row_rates.take(consumer, most, rows)
