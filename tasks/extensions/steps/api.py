"""Endpoints for the steps of tasks, and the steps of an object in its answer."""

from django.db.models import Model, QuerySet

from stator.models import StatorModel, Step, home_of, owner_of, steps_of
from tasks.api.access import CLAIM, ApiRequest, task_of
from tasks.api.bodies import check
from tasks.api.claims import held_by
from tasks.api.documents import Endpoints
from tasks.api.objects import MAX_HISTORY, add_details
from tasks.api.schemas import StepDoneOut, StepIn, StepsOut
from tasks.extensions.api.models import Consumer
from tasks.models import Task

router = Endpoints(tags=["claims"])

# The most steps in an answer.
MAX_STEPS = 1000


@router.at("GET", "tasks/{int:pk}/claim/steps", CLAIM, StepsOut, "List the steps done", name="list_steps")
def steps(request: ApiRequest, pk: int) -> dict[str, object]:
    """Return the durable steps that claims of the task have recorded. A further claim does not repeat them."""
    task = task_of(request.auth, pk)
    return {"steps": [_step_out(step) for step in steps_of(Task.objects.using(task._state.db), pk)[:MAX_STEPS]]}


@router.at("PUT", "tasks/{int:pk}/claim/steps/{path:name}", CLAIM, StepDoneOut, "Record a step", 409, 413)
def record_step(request: ApiRequest, pk: int, name: str, payload: StepIn) -> dict[str, object]:
    """Record the result of a step while the claim is held; 409 `step_refused` if it has another result already.

    A client that lost the answer may repeat the request and gets the same answer.
    """
    check(name)
    held = held_by(request, pk, payload)
    held.record_step(name, payload.result)
    return _step_out(steps_of(Task.objects.using(held.task._state.db), pk).get(name=name))


def _step_out(step: Step) -> dict[str, object]:
    return {"name": step.name, "result": step.value, "at": step.at, "attempt": step.attempt}


def _steps_of(row: StatorModel, consumer: Consumer) -> list[object]:
    rows: QuerySet[Model] = QuerySet(owner_of(type(row)), using=home_of(row))
    return list(steps_of(rows, row.pk).values("name", "at", "attempt")[:MAX_HISTORY])


add_details("steps", _steps_of)
