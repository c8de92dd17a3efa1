"""Backends for tests, results of tasks that have run, and what signals tell."""

from typing import Any

from django.dispatch import Signal
from django.test import override_settings

from stator.testing import advance, drain
from tasks.backend.framework import task_backends
from tasks.models import Task
from tests.testapp import tasks as examples

BACKEND = "tasks.backend.StatorBackend"


def done(result: Any) -> Any:
    drain(Task)
    result.refresh()
    return result


class Heard:
    """The calls of receivers while the context is open."""

    def __init__(self, *signals: Signal) -> None:
        self.signals = signals
        self.told: list[tuple[Any, Any, Any, Any]] = []

    def __enter__(self) -> list[tuple[Any, Any, Any, Any]]:
        for signal in self.signals:
            signal.connect(self._hear)
        return self.told

    def __exit__(self, *error: object) -> None:
        for signal in self.signals:
            signal.disconnect(self._hear)

    def _hear(self, sender: Any, task_result: Any, signal: Signal, **kwargs: Any) -> None:
        self.told.append((signal, sender, task_result, task_result.status))


def enqueue_many(calls: Any, task: Any = examples.add) -> Any:
    return task_backends[task.backend].enqueue_many(task, calls)  # type: ignore[attr-defined]


def backend(**params: Any) -> Any:
    return override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], **params}})


def run(result: Any) -> Any:
    """The result after one more attempt, whose time has come."""
    advance(31, Task)
    drain(Task)
    return fresh(result)


def fresh(result: Any) -> Any:
    result.refresh()
    return result


def counts(result: Any) -> tuple[int, int, int]:
    return result.attempts, len(result.worker_ids), len(result.errors)
