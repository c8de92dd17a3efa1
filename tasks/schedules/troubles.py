"""Schedules with a tick that was due and has not fired; a bounded number of rows is read."""

from typing import Any

from django.apps import apps
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from stator.graph.durations import span
from stator.models import Remedy, Trouble
from tasks.queue.expressions import Later

# Seconds after which a due tick is late; seconds within which schedules with a late tick are attempted again; and the
# most schedules that are read.
LATE, SOON, READ = 60.0, 90.0, 1000

SHOWN = 20


def troubles(using: str) -> list[Trouble]:
    """Return one trouble if ticks are late for another reason than a paused queue, which is a trouble of its own."""
    schedules: QuerySet[Any] = QuerySet(apps.get_model("tasks", "Schedule"), using=using)
    # Index ``st_rest``: late ticks wait for a paused queue or a task, and are attempted every few seconds.
    resting = schedules.filter(state_ready=False, state_claim=None, state="waiting")
    soon = resting.filter(state_next_attempt__lte=Later(SOON)).order_by("state_next_attempt").values("pk")[:READ]
    late = schedules.filter(pk__in=list(soon.values_list("pk", flat=True)), planned__lte=Later(-LATE), enabled=True)
    late = late.filter(held_until=None, removed=False)
    over = Q(queue__pause_until__isnull=False, queue__pause_until__lte=Now())
    # A pause of the queue is a trouble of its own.
    late = late.exclude(Q(queue__publish_paused=True) & ~over)
    found = list(late.order_by("planned", "pk").values_list("pk", "name", "entity", "planned", Now())[: SHOWN + 1])
    if not found:
        return []
    count, more = min(len(found), SHOWN), len(found) > SHOWN
    _, _, _, planned, now = found[0]
    since = max(0.0, (now - planned).total_seconds())
    names = ", ".join(f"{name} {entity}".strip() for _, name, entity, *_ in found[:5]) + (", ..." if count > 5 else "")
    noun = "schedule has" if count == 1 and not more else "schedules have"
    return [
        Trouble(
            "schedule_late", "error", "tasks.Schedule",
            f"{count}{'+' if more else ''} {noun} not fired a tick that was due up to {span(since)} ago",
            "tasks.schedule", detail=names, count=count, more=more, since=since,
            remedies=(Remedy("Run now", "tasks.schedule", "run_now", tuple(pk for pk, *_ in found[:SHOWN])),),
            advice="see the schedule's page for its reason", command="manage.py stator explain tasks.Schedule",
        )
    ]  # fmt: skip
