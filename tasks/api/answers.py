"""Answers with tasks, in the form of their schemas, but not validated: this code has written what they say.

Validation and serialization by the schemas took a tenth of the time of a request.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TypeAlias, TypeVar

from django.http import JsonResponse
from ninja.responses import NinjaJSONEncoder

from stator.texts import JsonObject
from tasks.api.schemas import RunOut, TaskOut
from tasks.models import Run, Task
from tasks.queue.held_claims import TaskClaim
from tasks.queue.publishing import Published

ShownT = TypeVar("ShownT")
Getters: TypeAlias = Mapping[str, Callable[[ShownT], object]]


def task_out(task: Task) -> dict[str, object]:
    """Return a task in the form of ``TaskOut``; for many tasks, call :func:`tasks.api.access.complete` before."""
    return {name: shown(task) for name, shown in _TASK.items()}


def task_with_runs_out(task: Task, runs: Iterable[Run], errors: list[str], log: str | None) -> dict[str, object]:
    """Return a task in the form of ``TaskWithRunsOut``."""
    shown = [{name: get(run) for name, get in _RUN.items()} for run in runs]
    return {**task_out(task), "rejected_by": task.rejected_by, "errors": errors, "log": log, "runs": shown}


def published_out(published: Published) -> dict[str, object]:
    """Return the outcome of a publication in the form of ``PublishedOut``."""
    return {"outcome": str(published.outcome), "task": task_out(published.task)}


def claims_out(claims: Iterable[TaskClaim], waited: float) -> dict[str, object]:
    """Return claims in the form of ``ClaimsOut``."""
    shown = [
        {"token": each.token, "attempt": each.attempt, "lease": each.lease, "task": task_out(each.task)}
        for each in claims
    ]
    return {"claims": shown, "waited": waited}


def answer(body: dict[str, object], status: int = 200) -> JsonResponse:
    """Return the response with this body."""
    return JsonResponse(body, NinjaJSONEncoder, status=status, content_type="application/json; charset=utf-8")


def _attempts(task: Task) -> int:
    return task.counted if hasattr(task, "counted") else task.attempts


def _claimant(task: Task) -> str | None:
    return task.holder if hasattr(task, "holder") else task.claimant


def _progress(task: Task) -> JsonObject | None:
    return task.__dict__.get("looked_up_progress")


_RUN: Getters[Run] = {name: attrgetter(name) for name in RunOut.model_fields}
_TASK: Getters[Task] = {name: attrgetter(name) for name in TaskOut.model_fields} | {
    "queue": attrgetter("queue.name"),
    "attempts": _attempts,
    "claimant": _claimant,
    "lease_until": attrgetter("state_locked_until"),
    "progress": _progress,
    "batch": attrgetter("batch_id"),  # tasks.extensions.batches
    "whole": attrgetter("whole_id"),  # tasks.extensions.shared
    "due": attrgetter("state_next_attempt"),
}
