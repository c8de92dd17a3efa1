"""Imports of Django's Tasks framework: ``django.tasks`` from Django 6.0 on, the package ``django-tasks`` before."""

import logging
from collections.abc import Callable
from weakref import ref

from django.dispatch import Signal

from stator.signals import send_contained

try:
    from django.tasks import signals, task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    from django_tasks import signals, task, task_backends  # type: ignore[assignment,no-redef]
    from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment]
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus  # type: ignore[assignment]
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist  # type: ignore[assignment]
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend", "Task", "TaskContext", "TaskError", "TaskException", "TaskResult", "TaskResultDoesNotExist",
    "TaskResultStatus", "is_heard", "is_received", "normalize_json", "send_finished", "task", "task_backends",
    "task_enqueued", "task_finished", "task_started",
]  # fmt: skip


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Return whether anything observes the signal: the framework's log at that level, or a receiver."""
    return signals.logger.isEnabledFor(level) or is_received(signal)


def is_received(signal: Signal) -> bool:
    """Return whether the signal has receivers other than the framework's own, which logs."""
    receivers = [each() if isinstance(each, ref) else each for _, each, *_ in signal.receivers]
    return any(getattr(each, "__module__", "") != signals.__name__ for each in receivers)


def send_finished(result: TaskResult, error: BaseException | None) -> list[tuple[Callable[..., object], object]]:
    """Send ``task_finished`` as the framework does: while ``error`` is handled, so that its log has the traceback."""
    sender = type(task_backends[result.backend])
    if error is None:
        return send_contained(task_finished, sender, task_result=result)
    try:
        raise error
    except BaseException:  # noqa: BLE001 - the error ended an attempt and is recorded already
        return send_contained(task_finished, sender, task_result=result)
