"""The backend for Django's own Tasks framework."""

from tasks.backend.declared_tasks import task
from tasks.backend.tasks_backend import StatorBackend

__all__ = ["StatorBackend", "task"]
