"""Errors that asyncio, threads and generators treat in a special way, from the code of actions."""

import asyncio
from typing import Any

import pytest

from stator.testing import drain
from tasks.actions.registry import RegisteredAction, registry
from tasks.models import Task
from tests.sizes import PATIENCE
from tests.stator.running import work
from tests.tasks.actions.making import make, report

pytestmark = pytest.mark.django_db(transaction=True)

ERRORS = [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit]
RUNS = {"worker": lambda: work(Task, run_for=PATIENCE), "drain": lambda: drain(Task)}


def options_of(place: str, error: type[BaseException]) -> dict[str, Any]:
    def fail(*args: Any) -> None:
        raise error("odd")

    async def acall(*args: Any) -> None:
        fail()

    def refuse(*args: Any) -> None:
        raise ValueError("odd")

    return {
        "action": {"function": fail},
        "async action": {"function": acall},
        "key": {"function": len, "rate": "100/s", "key": fail},
        "backoff": {"function": refuse, "backoff": fail},
    }[place]


def published(monkeypatch: pytest.MonkeyPatch, place: str, **options: Any) -> list[Task]:
    """A task for each error."""
    tasks = []
    for error in ERRORS:
        action = RegisteredAction(name=error.__name__, **{**options, **options_of(place, error)})
        monkeypatch.setitem(registry, error.__name__, {"": action})
        tasks.append(make(error.__name__))
    return tasks


@pytest.mark.parametrize(
    ("run", "place"),
    [("worker", "action"), ("worker", "async action"), ("drain", "action"), ("drain", "key"), ("drain", "backoff")],
)
def test_it_fails_the_attempt_alone(monkeypatch: pytest.MonkeyPatch, run: str, place: str) -> None:
    odd, other = published(monkeypatch, place, backoff=600.0), make("echo")
    RUNS[run]()
    other.refresh_from_db()
    assert other.state == "completed"
    for task in odd:
        task.refresh_from_db()
        assert (task.state, task.state_claim) == ("pending", None)
        assert (task.state_attempts, task.state_failures) == (1, 1)
        assert "odd" in report(task).traceback


def test_last_attempt_ends_with_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = published(monkeypatch, "async action", max_attempts=1)
    drain(Task)
    for task in odd:
        task.refresh_from_db()
        assert (task.state, task.state_attempts) == ("errored", 0)
        assert "odd" in report(task).traceback
