"""Schedules whose tick is due and has not fired; a bounded number of rows is read."""

from django.apps import apps
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Now

from tasks.queue.expressions import Later

# Seconds after which a due tick is late; seconds within which schedules with a late tick are attempted again; and the
# most schedules that are read.
LATE, SOON, READ = 60.0, 90.0, 1000


def late_schedules(using: str) -> QuerySet[Model]:
    """Return the schedules with a late tick; one statement to find them, another to read them."""
    schedules: QuerySet[Model] = QuerySet(apps.get_model("tasks", "Schedule"), using=using)
    # Index ``st_rest``: late ticks wait for a paused queue or a task, and are attempted every few seconds.
    resting = schedules.filter(state_ready=False, state_claim=None, state="waiting")
    soon = resting.filter(state_next_attempt__lte=Later(SOON)).order_by("state_next_attempt").values("pk")[:READ]
    late = schedules.filter(pk__in=list(soon.values_list("pk", flat=True)), planned__lte=Later(-LATE), enabled=True)
    return late.filter(held_until=None, removed=False)


def publishes_nothing() -> Q:
    """Return the condition for schedules with a queue whose publishing is paused, which is a trouble of its own."""
    over = Q(queue__pause_until__isnull=False, queue__pause_until__lte=Now())
    return Q(queue__publish_paused=True) & ~over
