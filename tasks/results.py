"""Results as Django's Tasks framework has them, made of rows and of what is kept beside them."""

import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from tasks.failures import NoHandler
from tasks.framework import TaskError, TaskException, TaskResult, TaskResultStatus
from tasks.registry import DJANGO

# Django's priorities go from -100 to 100, larger is sooner; ours are moments in milliseconds, smaller is sooner. One
# step of Django's is more milliseconds than there will be until the year 2286, so that it decides before the moment.
STEP = 10**13

STATUSES = {
    "completed": TaskResultStatus.SUCCESSFUL,
    "canceled": TaskResultStatus.FAILED,
    "errored": TaskResultStatus.FAILED,
}

# Stands for the worker of an attempt of which nothing is kept: it was lost with its worker, or put off by itself.
UNKNOWN_WORKER = "unknown"


def new_result(pk: int, created: datetime, data: dict[str, Any], task: Any, alias: str) -> Any:
    """The result of a task that was just enqueued with this data."""
    return TaskResult(
        task=task,
        id=str(pk),
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


def results_of(rows: list[Any], resolve: Callable[[str], Any]) -> list[Any]:
    """The results of rows of one database as they are now, in two further statements at most.

    ``resolve`` gives the task for a path. Rows whose task is gone are left out.
    """
    past = [row for row in rows if has_past(row)]
    events, reports = _events(past), _reports(past)
    results = []
    for row in rows:
        try:
            task = _task(row, resolve)
        except NoHandler:
            continue
        results.append(_result(row, task, events[str(row.pk)], reports.get(str(row.pk))))
    return results


def has_past(row: Any) -> bool:
    """Whether the task has been attempted before, or has ended."""
    return row.state in STATUSES or row.state_attempts > bool(row.state_claim)


def priority_of(priority: int) -> int:
    """Our priority, now, for one of Django's."""
    return time.time_ns() // 1_000_000 - priority * STEP


def django_priority(priority: int) -> int:
    """Django's priority for one of ours."""
    return max(-100, min(100, -(priority // STEP)))


def _result(row: Any, task: Any, events: list[Any], latest: Any) -> Any:
    result = new_result(row.pk, row.created, row.data, task, task.backend)
    finished = row.state_changed if row.state in STATUSES else None
    starts = [event.at - timedelta(seconds=event.duration or 0.0) for event in events]
    if finished is not None:
        # Some of these moments are rounded more than others; nothing began after it had ended.
        starts = [min(start, finished) for start in starts]
    status = STATUSES.get(row.state, TaskResultStatus.RUNNING if row.state_claim else TaskResultStatus.READY)
    if status == TaskResultStatus.RUNNING:
        starts.append(row.state_attempted)
    values = {
        "status": status,
        "started_at": starts[0] if starts else None,
        "last_attempted_at": starts[-1] if starts else None,
        "finished_at": finished,
        "errors": _errors(events, latest),
        "worker_ids": _workers(row, events),
        "_return_value": row.result if status == TaskResultStatus.SUCCESSFUL else None,
    }
    for name, value in values.items():
        # The class is frozen for those who get it.
        object.__setattr__(result, name, value)
    return result


def _task(row: Any, resolve: Callable[[str], Any]) -> Any:
    """The task as it was enqueued."""
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
        raise NoHandler(f"no handler: {row.action} cannot be had as it was enqueued: {error}") from error


def _events(rows: list[Any]) -> dict[str, list[Any]]:
    """What is kept of the attempts of each row, in their order."""
    found: dict[str, list[Any]] = defaultdict(list)
    if rows:
        history = apps.get_model("stator", "History")
        kept = history.objects.using(rows[0]._state.db).filter(
            model_label=rows[0]._meta.label_lower,
            object_pk__in=[str(row.pk) for row in rows],
            kind__in=(history.Kind.MOVE, history.Kind.ERROR),
            source="pending",
        )
        for event in kept.order_by("at", "pk"):
            found[event.object_pk].append(event)
    return found


def _reports(rows: list[Any]) -> dict[str, Any]:
    """The latest error of each row with its traceback; of earlier ones only type and message are kept."""
    if not rows:
        return {}
    reports = apps.get_model("stator", "Report").objects.using(rows[0]._state.db).exclude(error="")
    kept = reports.filter(model_label=rows[0]._meta.label_lower, object_pk__in=[str(row.pk) for row in rows])
    return {report.object_pk: report for report in kept}


def _errors(events: list[Any], latest: Any) -> list[Any]:
    """The errors of the attempts, in their order."""
    errors = [_error(*event.error.partition(": ")[::2]) for event in events if event.error]
    if latest is None:
        return errors
    # The move that an error causes is kept without it on some databases.
    if events and events[-1].to == "errored" and not events[-1].error:
        errors.append(None)
    told = f"{latest.error}: {latest.message}"
    if errors and (errors[-1] is None or events[-1].error == told):
        errors[-1] = _error(latest.error, latest.message, latest.traceback)
    return errors


def _error(kind: str, message: str, traceback: str = "") -> Any:
    path = kind if "." in kind else f"builtins.{kind}"
    return TaskError(exception_class_path=path, traceback=traceback or f"{kind}: {message}\n")


def _workers(row: Any, events: list[Any]) -> list[str]:
    """The worker of each attempt so far."""
    known = {event.attempts: event.worker for event in events}
    if row.state_claim:
        known[row.state_attempts] = row.state_claim.hex[:12]
    return [known.get(number) or UNKNOWN_WORKER for number in range(1, max([row.state_attempts, *known]) + 1)]
