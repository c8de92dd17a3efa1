"""The Django app ``tasks``: a durable queue, schedules and an HTTP API."""

from importlib import import_module

from django.apps import AppConfig


class TasksConfig(AppConfig):
    """The configuration of the app."""

    name = "tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the signal receivers and system checks of the modules that have some."""
        for module in CONNECTED:
            import_module(f"tasks.{module}").connect()


# The modules with a ``connect()``.
CONNECTED: list[str] = [
    "hooks",
    "worker.attempts",
    "conf",
    "sharding.replicas",
    "schedules.periodic_sync",
    "chores.shared_tasks",
    "chores.retention",
    "queue.serving",
]
