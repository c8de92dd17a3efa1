"""Publishing tasks, canceling them, and running dead letters again."""

from collections.abc import Sequence
from functools import partial

from django.http import HttpResponse
from ninja import Field, Query, Schema

from tasks.api.access import PUBLISH, ApiRequest, complete, queue_of, task_of
from tasks.api.answers import answer, published_out, task_out
from tasks.api.batches import GIVEN, JOINS, TOGETHER, BatchIn, publishing_into  # tasks.extensions.batches
from tasks.api.documents import Endpoints
from tasks.api.rate_limits import row_rates
from tasks.api.schemas import (
    MAX_IN_BULK,
    OnExistingKeyIn,
    PublishedOut,
    TaskChange,
    TaskIn,
    TaskNumber,
    TaskOut,
    described,
)
from tasks.conf import load_settings
from tasks.exceptions import MoveRefused
from tasks.extensions.api.models import Consumer
from tasks.queue import publishing
from tasks.queue.actions import refuse_to_change_over_http
from tasks.queue.publishing import Published
from tasks.queue.task_parts import KIND

router = Endpoints(tags=["publishing"])

ON_EXISTING, OF_TASK = set(OnExistingKeyIn.model_fields), set(TaskIn.model_fields)


class PublishIn(TaskIn, OnExistingKeyIn):
    """A task to publish."""

    batch: TaskNumber | None = described(JOINS, None, None)  # tasks.extensions.batches


class PublishManyIn(OnExistingKeyIn):
    """Tasks to publish, all or none of them."""

    batch: BatchIn | TaskNumber | None = described(TOGETHER, None, None)  # tasks.extensions.batches
    tasks: list[TaskIn] = Field(
        min_length=1, max_length=MAX_IN_BULK, examples=[[{"action": "resize", "data": {"image": 7}}]]
    )


class PublishedManyOut(Schema):
    """One result for each task, in the order of the tasks."""

    batch: int | None = described(GIVEN, None)  # tasks.extensions.batches
    results: list[PublishedOut]


@router.at("POST", "queues/{queue}/tasks", PUBLISH, PublishedOut, "Publish a task", 409, 413, statuses=[200, 201])
def publish(request: ApiRequest, queue: str, payload: PublishIn) -> HttpResponse:
    """Answers 201 if the task was inserted, and 200 if the queue already has a task with this key."""
    [published] = _publish(request.auth, queue, [payload], payload)
    return answer(published_out(published), 201 if published.outcome == "inserted" else 200)


@router.at("POST", "queues/{queue}/tasks/bulk", PUBLISH, PublishedManyOut, "Publish many tasks", 409, 413)
def publish_many(request: ApiRequest, queue: str, payload: PublishManyIn) -> HttpResponse:
    """Publish all tasks or none. The results are in the order of the tasks."""
    results = _publish(request.auth, queue, payload.tasks, payload)
    given: dict[str, object] = {}
    given["batch"] = payload.batch and results[0].task.batch_id  # tasks.extensions.batches
    return answer({**given, "results": [published_out(each) for each in results]})


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
    messages = [task.dict(exclude_unset=True, include=OF_TASK) for task in tasks]
    options = publishing.OnExistingKey(**{name: getattr(payload, name) for name in ON_EXISTING})
    own, publish = queue_of(consumer, queue), publishing.publish
    publish = publishing_into(consumer, payload.batch) or publish  # tasks.extensions.batches
    results = publish(own, messages, options, over_http=True, admit=partial(_take_rows, consumer))
    # Each answer needs the task's parts and attempts: read them once for all tasks.
    published = [each.task for each in results]
    KIND.parts.read_states(published)
    complete(published, str(own._state.db))
    return results


def _take_rows(consumer: Consumer, rows: int) -> None:
    """Count a request's rows against the consumer's minute, even if some of the tasks exist already."""
    most = consumer.rows_per_minute or load_settings().API_ROWS_PER_MINUTE
    # A request larger than a whole minute's allowance would never succeed.
    publishing.bound_rows(rows, most)
    row_rates.take(consumer, most, rows)
