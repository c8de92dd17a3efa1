"""A task in a module of no installed app."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task()
def far() -> None:
    """Only with its module listed."""
