"""django-tasks-db: Django's Tasks framework on its database backend, with the worker it ships.

It does less than a task here: there are no retries and no lease, so a task whose worker died stays "running" for ever.
It stores the row with the result, like the backend of this project.
"""

import os
from urllib.parse import urlsplit

import django
import script
from django.conf import settings


def set_up(url: str) -> None:
    """Set up Django with only the peer installed."""
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname or "",
        "PORT": parts.port or "", "USER": parts.username or "", "PASSWORD": parts.password or "",
        # Otherwise its worker opens a new connection for each task.
        "CONN_MAX_AGE": None,
    }  # fmt: skip
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["django_tasks_db"],
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
        USE_TZ=True,
    )
    django.setup()


def install(url: str) -> None:
    """Create its tables."""
    from django.core.management import call_command

    set_up(url)
    call_command("migrate", verbosity=0)


def enqueue(url: str, jobs: int) -> None:
    """Enqueue one by one with a commit each: it has no bulk call."""
    from django_tasks_db_job import nothing

    for _ in range(jobs):
        nothing.enqueue()


def work(url: str, size: int) -> None:
    """Run one worker, which runs one task after the other."""
    from django.core.management import call_command

    set_up(url)
    script.begin()
    call_command("db_worker", interval=0.1, startup_delay=False, verbosity=0)


def left(url: str) -> int:
    """Return the tasks that have not succeeded."""
    from django_tasks_db.models import DBTaskResult

    return DBTaskResult.objects.exclude(status="SUCCESSFUL").count()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    script.main(script.Peer(install, work, enqueue, left), size=1)
