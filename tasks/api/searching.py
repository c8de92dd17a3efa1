"""Endpoints that search and show tasks."""

from collections.abc import Callable
from typing import Literal

from django.http import HttpResponse
from ninja import Query
from pydantic import Json

from stator.graph.backoff import MAX_SECONDS
from stator.rows.readings import read
from tasks.api.access import QUERY, ApiRequest, complete, note_progress, page_of, queue_of, task_of, tasks_of
from tasks.api.answers import answer, task_out, task_with_runs_out
from tasks.api.bodies import check
from tasks.api.documents import Endpoints
from tasks.api.errors import Invalid
from tasks.api.schemas import BIGINT, Metadata, Page, TasksOut, TaskWithRunsOut, parameter
from tasks.conf import load_settings
from tasks.messages import check_metadata
from tasks.models import Task
from tasks.querysets import TaskQuerySet
from tasks.queue.runs import attempts_of, errors_in, of_task

router = Endpoints(tags=["searching"])

MAX_RUNS = 100

StatusName = Literal["invisible", "pending", "running", "completed", "canceled", "errored"]


# Filters that are columns.
SAME = (
    "action", "key",
    "batch",  # tasks.extensions.batches
)  # fmt: skip


class TaskFilters(Page):
    """Filters for tasks; a task must match all of them."""

    queue: str | None = parameter("Tasks of this queue; by default of all queues that the token may use.", "encode")
    status: list[StatusName] = parameter("Tasks with this status; repeat it for several.", ["pending"], [])
    action: str | None = parameter("Tasks with this action.", "resize")
    key: str | None = parameter("Tasks with this key.", "image-7")
    batch: int | None = parameter("Tasks of this batch.", 17, ge=1, le=BIGINT)  # tasks.extensions.batches
    metadata: Json[Metadata] | None = parameter(
        "Tasks whose metadata has all of these values: a JSON object.", '{"title": "abc"}'
    )
    worker: str | None = parameter("Tasks that this worker has ever claimed.", "bot-1")
    held_by: str | None = parameter("Tasks that this worker holds now.", "bot-1")
    older_than: float | None = parameter("Tasks published more than this many seconds ago.", 3600, ge=0, le=MAX_SECONDS)


@router.at("GET", "tasks", QUERY, TasksOut, "Search tasks", 404, name="list_tasks")
def search(request: ApiRequest, filters: Query[TaskFilters]) -> HttpResponse:
    """Return tasks in the order of their publication, page by page."""
    if unknown := sorted(request.GET.keys() - TaskFilters.model_fields.keys()):
        raise Invalid(f"query: there is no filter {unknown[0]!r}; filters are {', '.join(TaskFilters.model_fields)}")
    queue = None if filters.queue is None else queue_of(request.auth, filters.queue)
    rows = tasks_of(request.auth) if queue is None else tasks_of(request.auth).filter(queue=queue)
    page, following = page_of(_matching(rows, filters), filters.limit)
    complete(page, rows.db)
    return answer({"tasks": [task_out(each) for each in page], "next": following})


@router.at("GET", "tasks/{int:pk}", QUERY, TaskWithRunsOut, "Show a task", name="show_task")
def show(request: ApiRequest, pk: int) -> HttpResponse:
    """Return a task with its latest runs, the newest first, the workers that rejected it, and its errors."""
    task = task_of(request.auth, pk)
    note_progress([task], str(task._state.db))
    runs = of_task(task).select_related("task").order_by("-pk")[:MAX_RUNS]
    report = read("report", str(task._state.db), Task, pk, otherwise=None)
    return answer(task_with_runs_out(task, runs, errors_in(attempts_of(task)), report.log if report else None))


def _matching(rows: TaskQuerySet, filters: TaskFilters) -> TaskQuerySet:
    same = {name: value for name in SAME if (value := getattr(filters, name)) is not None}
    rows = rows.filter(pk__gt=filters.after, **same)
    narrowings: tuple[tuple[Callable[..., TaskQuerySet], object], ...] = (
        (TaskQuerySet.had_by, filters.worker),
        (TaskQuerySet.held_by, filters.held_by),
        (TaskQuerySet.older_than, filters.older_than),
    )
    for narrow, value in narrowings:
        if value is not None:
            rows = narrow(rows, value)
    if filters.status:
        rows = rows.with_status(*filters.status)
    if filters.metadata is None:
        return rows
    check(filters.metadata)
    check_metadata(filters.metadata, load_settings().METADATA_LIMIT)
    return rows.with_metadata(dict(filters.metadata))
