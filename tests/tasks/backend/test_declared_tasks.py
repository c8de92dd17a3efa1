"""Tasks with ``max_attempts`` and ``backoff`` as in Django's open proposal for retries."""

from typing import Any

import pytest

from stator.testing import advance, drain
from tasks.backend import task
from tasks.backend.declared_tasks import StatorTask
from tasks.backend.framework import Task as FrameworkTask
from tasks.backend.framework import TaskResultStatus
from tasks.models import Task
from tests.tasks.backend.making import backend, done
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def told() -> list[Any]:
    examples.calls.clear()
    return examples.calls


def test_backoff_is_told_of_each_error_and_decides_when_the_task_runs_again(told: list[Any]) -> None:
    result = examples.fetch.enqueue("here")
    for number, wait in enumerate((30, 60), start=1):
        assert done(result).status == TaskResultStatus.READY
        error, then = told[-1]
        assert (type(error), str(error)) == (ConnectionError, "here")
        assert (then.id, then.attempts, then.status) == (result.id, number, TaskResultStatus.FAILED)
        assert [each.exception_class for each in then.errors] == [ConnectionError] * number
        assert "in fetch" in then.errors[-1].traceback
        advance(wait - 5, Task)
        assert drain(Task) == 0
        advance(5, Task)
    assert done(result).status == TaskResultStatus.FAILED
    # Nothing is left to decide after the last attempt.
    assert (result.attempts, len(result.errors), len(told)) == (3, 3, 2)


def test_backoff_that_returns_none_ends_the_task(told: list[Any]) -> None:
    result = done(examples.fetch.enqueue("here", denied=True))
    assert (result.status, result.attempts, len(told)) == (TaskResultStatus.FAILED, 1, 1)


def test_backoff_that_fails_is_the_error_of_the_attempt_which_is_repeated() -> None:
    result = done(examples.badly_backed_off.enqueue())
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.READY, TypeError)
    for part in ("badly_backed_off returned 'soon'; return seconds or None", "LookupError: first"):
        assert part in result.errors[0].traceback


def test_options_of_the_task_go_before_those_of_the_backend() -> None:
    with backend(OPTIONS={"max_attempts": 7, "backoff": 5}):
        assert task_of(examples.fetch.enqueue("here")).max_attempts == 3
        assert task_of(examples.add.enqueue(1)).max_attempts == 7
        result = done(examples.go_wrong.enqueue("there"))
        advance(6, Task)
        assert done(result).attempts == 2


def test_using_keeps_the_options() -> None:
    changed = examples.fetch.using(priority=3)
    assert isinstance(changed, StatorTask)
    assert (changed.max_attempts, changed.backoff) == (3, examples.careful)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_attempts": 0}, "max_attempts=0 must be a whole number of at least 1"),
        ({"max_attempts": 2, "backoff": lambda number: 5}, "must be a function of the exception and the task result"),
        ({"max_attempts": 2, "backoff": 30}, "backoff=30 must be a function of the exception and the task result"),
    ],
)
def test_options_that_cannot_work_are_refused_where_the_task_is_declared(options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        task(**options)(examples.careful)


def test_other_backends_ignore_the_options() -> None:
    name = FrameworkTask.__module__.partition(".base")[0]
    with backend(BACKEND=f"{name}.backends.dummy.DummyBackend"):
        assert type(task(max_attempts=3, backoff=examples.careful)(examples.careful)) is FrameworkTask
        assert type(task(examples.careful)) is FrameworkTask
