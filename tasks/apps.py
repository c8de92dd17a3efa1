"""The Django app ``tasks``."""

from importlib import import_module

from django.apps import AppConfig


class TasksConfig(AppConfig):
    """Tasks: a durable queue, and schedules."""

    name = "tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect signal receivers and system checks."""
        for module in CONNECTED:
            import_module(f"tasks.{module}").connect()


# Modules with a ``connect()`` of their own.
CONNECTED: list[str] = [
    "actions.attempts",
    "conf",
    "sharding.replicas",
    "schedules.periodic_sync",
    "queue.shared_tasks",
    "queue.serving",
]
