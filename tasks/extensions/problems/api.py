"""Endpoints that say why a task or an object does not move."""

from stator.models import StatorModel
from tasks.api.access import QUERY, ApiRequest, task_of
from tasks.api.documents import Endpoints
from tasks.api.objects import add_details
from tasks.api.schemas import ExplainedOut
from tasks.extensions.api.models import Consumer

router = Endpoints(tags=["searching"])


@router.at("GET", "tasks/{int:pk}/explain", QUERY, ExplainedOut, "Explain a task", name="explain_task")
def explain(request: ApiRequest, pk: int) -> dict[str, object]:
    """Return why the task is not moving and what to do, the most decisive reason first."""
    task = task_of(request.auth, pk)
    return {"task": task.pk, "status": task.status, "reasons": _reasons_of(task)}


def _reasons_of(row: StatorModel, _: Consumer | None = None) -> list[dict[str, object]]:
    return [reason.as_dict() for reason in row.explain()]


add_details("reasons", _reasons_of)
