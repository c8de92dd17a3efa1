"""Tools for a project's tests: move time forward, for schedules too, instead of waiting."""

from datetime import timedelta

from django.db import router
from django.db.models import F, Model, QuerySet

from stator import testing
from tasks.models import Schedule
from tasks.schedules.rates import Rate

__all__ = ["advance"]

MOMENTS: dict[type[Model], tuple[str, ...]] = {
    Schedule: ("nominal", "planned", "held_until", "until", "fired", "fired_for"),
    Rate: ("free_at", "line_until"),
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
