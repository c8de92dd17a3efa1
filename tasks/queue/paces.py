"""How fast the tasks of a queue end: the latest that ended, a bounded number of them."""

from datetime import datetime

from django.db.models import Model, QuerySet

from stator.graph.durations import seconds_of
from stator.survey.estimates import LATELY
from tasks.rows.clock import Later
from tasks.rows.tasks import NO_PART, TERMINAL

# The latest ends of tasks that are read, and the seconds in which they are counted at least.
MAX_ENDED, SHORTEST = 1000, 10.0


def ended_lately(tasks: QuerySet[Model]) -> QuerySet[Model]:
    """Return the tasks of a queue that ended in the last minutes, the latest first. Index ``tasks_task_ended``."""
    ended = tasks.filter(NO_PART, state__in=TERMINAL, retention=None)
    return ended.filter(state_changed__gte=Later(-LATELY)).order_by("-state_changed")


def span_of(ended: int, first: datetime | None, now: datetime, waited: float | None = None) -> float:
    """Return in how many seconds these tasks have ended, the first of them at ``first``.

    ``waited``: the seconds that the first task has waited. Before that and before the first end nothing was to be done.
    Very many that ended are of a shorter time.
    """
    since = 0.0 if first is None else seconds_of(now - first)
    if ended < MAX_ENDED:
        since = LATELY if first is None and waited is None else max(since, waited or 0.0)
    return min(LATELY, max(SHORTEST, since))
