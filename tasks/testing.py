"""Tools for a project's tests: move time forward, for schedules too, instead of waiting."""

from datetime import timedelta

from django.db import router
from django.db.models import F, Model, QuerySet

from stator import testing
from tasks.extensions.schedules.rates import Rate
from tasks.extensions.schedules.schedules import Schedule

__all__ = ["advance"]

MOMENTS: dict[type[Model], tuple[str, ...]] = {
    Schedule: ("nominal", "planned", "held_until", "until", "fired", "fired_for"),  # tasks.extensions.schedules
    Rate: ("free_at", "line_until"),  # tasks.extensions.schedules
}


def advance(seconds: float, *models: type[Model]) -> None:
    """Move time forward like :func:`stator.testing.advance`, and also bring the ticks of schedules closer.

    >>> schedule = Schedule.objects.create(name="report", queue=queue, action="report", period=60)
    >>> drain(Schedule)
    1
    >>> advance(60)
    >>> drain(Schedule)
    1
    >>> queue.tasks.get().metadata["tick"]
    0
    """
    testing.advance(seconds, *models)
    for model, names in MOMENTS.items():
        rows: QuerySet[Model] = QuerySet(model, using=router.db_for_write(model))
        rows.update(**{name: F(name) - timedelta(seconds=seconds) for name in names})
