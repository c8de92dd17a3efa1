"""Attempts of actions that do not begin."""

from typing import Any

from asgiref.sync import async_to_sync

from stator.graph.outcomes import Released
from stator.models import Report
from stator.worker.executor import attempt_async
from tasks.graph import TaskGraph
from tasks.models import Task
from tests.stator.making import operations_of
from tests.tasks.actions.making import make


def publish(action: str = "heard") -> Task:
    return make(action, max_attempts=1)


def claimed() -> Any:
    (claim,) = operations_of(Task).claim([TaskGraph.pending], 1)
    return claim


def attempt(claim: Any, while_calling: Any) -> tuple[Any, list[str]]:
    with while_calling as sent:
        attempted = async_to_sync(attempt_async)([claim])
    ((_, outcome),) = attempted.ended
    assert not claim.operations.record(attempted.ended).lost
    return outcome, sent


def assert_free_of_attempts(task: Task, outcome: Any) -> None:
    task.refresh_from_db()
    assert isinstance(outcome, Released)
    assert outcome.after > 0
    assert (task.state, task.state_attempts, task.state_failures, task.state_claim) == ("pending", 0, 0, None)
    assert Report.objects.get(model_label="tasks.task").message == outcome.reason
