"""Results of Django's Tasks framework, built from tasks and their history."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime

from django.core.exceptions import ImproperlyConfigured

from stator.graph.failures import describe
from stator.texts import JsonObject
from tasks.backend.framework import Task, TaskError, TaskException, TaskResult, TaskResultStatus
from tasks.backend.history import AttemptEnd, events_of, latest_error
from tasks.conf import DJANGO
from tasks.extensions.backend.priorities import django_priority
from tasks.failures import NoHandler
from tasks.rows.tasks import TaskRow

STATUSES = {
    "completed": TaskResultStatus.SUCCESSFUL,
    "canceled": TaskResultStatus.FAILED,
    "errored": TaskResultStatus.FAILED,
}

# The key of random digits in the data of tasks that are enqueued together.
NONCE = "nonce"

# The worker of an attempt without a record: it was lost with its worker, or postponed itself.
UNKNOWN_WORKER = "unknown"


def new_result(pk: int, created: datetime, data: JsonObject, task: Task, alias: str) -> TaskResult:
    """Return the result of a task that was just enqueued with this data."""
    return TaskResult(
        task=task,
        id=result_id(pk, data),
        status=TaskResultStatus.READY,
        enqueued_at=created,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=data["args"],
        kwargs=data["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_id(pk: int, data: dict[str, object]) -> str:
    """Return the id of a result: the task's number, and digits that identify its enqueueing.

    A number alone may be reused: after a rollback SQLite gives the same number again, and a server that takes over
    after a crash may not know the latest numbers.
    """
    return f"{pk}-{data[NONCE]}"


def number_of(result: TaskResult) -> int:
    """Return the task number of a result."""
    return int(result.id.partition("-")[0])


def results_of(rows: Iterable[TaskRow], resolve: Callable[[str], Task]) -> list[TaskResult]:
    """Return the results of tasks that were read with their history. ``resolve`` returns the task for a path.

    Rows whose task no longer exists are left out.
    """
    results = []
    for row in rows:
        try:
            results.append(_result(row, _task(row, resolve)))
        except NoHandler:
            continue
    return results


def has_past(row: TaskRow) -> bool:
    """Return whether the task has been attempted before, or has ended."""
    return row.state_version > 0 or row.state_attempts > bool(row.state_claim)


def _result(row: TaskRow, task: Task) -> TaskResult:
    result = new_result(row.pk, row.created, row.data or {}, task, task.backend)
    events = events_of(row)
    attempts = _attempts(row, events)
    starts = [start for _, start in attempts if start is not None]
    status = STATUSES.get(row.state, TaskResultStatus.RUNNING if row.state_claim else TaskResultStatus.READY)
    values = {
        "status": status,
        "started_at": starts[0] if starts else None,
        "last_attempted_at": starts[-1] if starts else None,
        "finished_at": row.state_changed if row.state in STATUSES else None,
        "errors": _errors(events, latest_error(row)),
        "worker_ids": [worker for worker, _ in attempts],
        "_return_value": row.result if status == TaskResultStatus.SUCCESSFUL else None,
    }
    for name, value in values.items():
        # The dataclass is frozen, so ordinary assignment fails.
        object.__setattr__(result, name, value)
    return result


def _task(row: TaskRow, resolve: Callable[[str], Task]) -> Task:
    """Return the task with the options it was enqueued with."""
    data = row.data if isinstance(row.data, dict) else {}
    run_after = data.get("run_after")
    try:
        return resolve(row.action.removeprefix(DJANGO)).using(
            priority=django_priority(row.priority),
            queue_name=row.queue.name,
            run_after=datetime.fromisoformat(run_after) if run_after else None,
            backend=data["backend"],
        )
    except (TaskException, ImproperlyConfigured, LookupError, TypeError, ValueError) as error:
        raise NoHandler(f"no handler: {row.action} cannot be loaded as it was enqueued: {error}") from error


def failed(result: TaskResult, error: BaseException) -> TaskResult:
    """Return the result of a running attempt as one that has failed with an error."""
    failure = describe(error)
    result.errors.append(_error(failure.kind, failure.message, failure.traceback))
    # As above.
    object.__setattr__(result, "status", TaskResultStatus.FAILED)
    return result


def _errors(events: list[AttemptEnd], latest: dict[str, str] | None) -> list[TaskError]:
    """Return the errors of the attempts in order; the latest has its traceback."""
    texts = [event.error for event in events if event.error]
    errors = [_error(*error.partition(": ")[::2]) for error in texts]
    if latest is not None and f"{latest['error']}: {latest['message']}" in texts[-1:]:
        errors[-1] = _error(latest["error"], latest["message"], latest["traceback"])
    return errors


def _error(kind: str, message: str, traceback: str = "") -> TaskError:
    path = kind if "." in kind else f"builtins.{kind}"
    return TaskError(exception_class_path=path, traceback=traceback or f"{kind}: {message}\n")


def _attempts(row: TaskRow, events: list[AttemptEnd]) -> list[tuple[str, datetime | None]]:
    """Return the worker and the start of each attempt since the task was enqueued."""
    stays: dict[int, dict[int, tuple[str, datetime | None]]] = defaultdict(dict)
    for event in events:
        if event.number:
            stays[event.stay].setdefault(event.number, (event.worker or UNKNOWN_WORKER, event.started))
    if row.state not in STATUSES and row.state_attempts:
        worker = row.state_claim.hex[:12] if row.state_claim else UNKNOWN_WORKER
        stays[row.state_version].setdefault(row.state_attempts, (worker, row.state_attempted))
    unknown = UNKNOWN_WORKER, None
    return [known.get(n, unknown) for _, known in sorted(stays.items()) for n in range(1, max(known) + 1)]
