"""Django's Tasks framework: in Django from 6.0 on, in the package ``django-tasks`` before."""

try:
    from django.tasks import task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    from django_tasks import task, task_backends  # type: ignore[assignment,no-redef]
    from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment]
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus  # type: ignore[assignment]
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist  # type: ignore[assignment]
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend", "Task", "TaskContext", "TaskError", "TaskException", "TaskResult", "TaskResultDoesNotExist",
    "TaskResultStatus", "normalize_json", "task", "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip
