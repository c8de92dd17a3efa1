"""The job of ``django_tasks_db_peer``: a task must be importable by name."""

import script
from django.tasks import task


@task
def nothing() -> None:
    """Do nothing."""
    script.handled()
