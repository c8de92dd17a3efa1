"""The backend for Django's own Tasks framework."""

from tasks.backend.tasks_backend import StatorBackend

__all__ = ["StatorBackend"]
