"""Schedules whose tick is due and has not fired; a bounded number of rows is read."""

from django.apps import apps
from django.db.models import Model, Q, QuerySet

from stator.models import Now
from tasks.rows.clock import Later

# Seconds after which a due tick is late; seconds within which schedules with a late tick are attempted again; and the
# most schedules that are read of those at rest, of those in line and of those that workers hold.
LATE, SOON, READ = 60.0, 90.0, 1000


def late_schedules(using: str) -> QuerySet[Model]:
    """Return the schedules with a late tick, also those that a worker attempts at this moment; four statements."""
    schedules: QuerySet[Model] = QuerySet(apps.get_model("tasks", "Schedule"), using=using)
    # Late ticks wait for a paused queue or a task, and are attempted every few seconds. Indexes ``st_rest``,
    # ``st_ready`` and ``st_lease``.
    resting = schedules.filter(state_ready=False, state_claim=None, state="waiting").order_by("state_next_attempt")
    parts = (
        resting.filter(state_next_attempt__lte=Later(SOON)),
        schedules.filter(state_ready=True).order_by(),
        schedules.filter(state_claim__isnull=False).order_by("state_locked_until"),
    )
    read = [pk for part in parts for pk in part.values_list("pk", flat=True)[:READ]]
    # What is ready or held and was not attempted lately has another trouble: no worker, or a worker that is silent.
    attempted = Q(state_ready=False, state_claim=None) | Q(state_attempted__gte=Later(-SOON))
    late = schedules.filter(attempted, pk__in=read, planned__lte=Later(-LATE), enabled=True)
    return late.filter(held_until=None, removed=False)


def publishes_nothing() -> Q:
    """Return the condition for schedules with a queue whose publishing is paused, which is a trouble of its own."""
    over = Q(queue__pause_until__isnull=False, queue__pause_until__lte=Now())
    return Q(queue__publish_paused=True) & ~over
