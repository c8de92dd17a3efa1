"""The Django app ``tasks``: a durable queue, schedules and an HTTP API."""

from importlib import import_module

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured

from stator.seams import Extension

# The extensions of the queue that are on, in the order in which they act.
EXTENSIONS = (
    "tasks.extensions.api",
    "tasks.extensions.backend",
    "tasks.extensions.queue_pauses",
    "tasks.extensions.problems",
    "tasks.extensions.shared",
    "tasks.extensions.notices",
    "tasks.extensions.batches",
    "tasks.extensions.throttles",
    "tasks.extensions.schedules",
)  # fmt: skip


class TasksConfig(AppConfig):
    """The configuration of the app."""

    name = "tasks"
    default_auto_field = "django.db.models.BigAutoField"
    # What the framework asks the app about tasks.
    stator_extension = Extension(
        name="tasks",
        conditions=("tasks.queue.process_eligibility.Eligible",),
        followers=("tasks.queue.follower.OfTasks",),
        effects=("tasks.queue.kept_runs.KeptRuns",),
        further=EXTENSIONS,
    )

    def import_models(self) -> None:
        """Import the models; raise ``ImproperlyConfigured`` if the app that they need is not installed."""
        if not apps.is_installed("stator"):
            raise ImproperlyConfigured("The app 'tasks' needs 'stator': INSTALLED_APPS = [..., 'stator', 'tasks'].")
        super().import_models()

    def ready(self) -> None:
        """Connect the signal receivers and system checks of the modules that have some."""
        for module in CONNECTED:
            import_module(f"tasks.{module}").connect()


# The modules with a ``connect()``.
CONNECTED: list[str] = [
    "worker.attempts",
    "conf",
    "chores.passes",
    "chores.retention",
    "queue.run_history",
    "queue.serving",
]
