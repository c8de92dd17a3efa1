"""Answers with tasks, in the form of their schemas, but without validating what this code has written itself.

Validation and serialization by the schemas took a tenth of the time of a request.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter

from django.http import JsonResponse
from ninja.responses import NinjaJSONEncoder

from tasks.api.schemas import TaskOut
from tasks.models import Task
from tasks.queue.held_claims import TaskClaim
from tasks.queue.publishing import Published

_SHOWN: dict[str, Callable[[Task], object]] = {
    name: getattr(TaskOut, f"resolve_{name}", None) or attrgetter(name) for name in TaskOut.model_fields
}


def task_out(task: Task) -> dict[str, object]:
    """Return a task in the form of ``TaskOut``."""
    return {name: shown(task) for name, shown in _SHOWN.items()}


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
