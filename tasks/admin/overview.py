"""The queues section of the admin's overview: what waits in each queue, since when, and what is paused."""

from collections import Counter

from django.contrib import admin
from django.db import router
from django.db.models import BooleanField, Count, ExpressionWrapper, IntegerField, Max, Q, QuerySet
from django.http import HttpRequest

from stator.admin import Cell, Section
from stator.admin.access import Pages
from stator.graph.durations import seconds_of, span
from stator.models import Now
from stator.texts import count_text
from tasks.models import Claimant, Queue, Task
from tasks.queue.expressions import has_any
from tasks.queue.figures import MAX_COUNTED, QueueFigures, lines
from tasks.rows.claimants import CLAIMANT_ALIVE
from tasks.rows.clock import Later

# The most queues that are shown: paused queues first, then queues with waiting tasks, then the rest, each by name.
SHOWN = 50

# Claimed tasks are counted up to this number in all queues together.
CLAIMED = 5000

# A longer wait, in seconds, is highlighted.
TOO_LONG = 300.0

HEADS = ("Queue", "Waiting", "Longest wait", "Done", "Claimed", "Named workers", "Pauses")


def section_of_queues(request: HttpRequest) -> Section | None:
    """Return the section for users who may view queues or tasks: four statements, however many queues."""
    if not (request.user.has_perm("tasks.view_queue") or request.user.has_perm("tasks.view_task")):
        return None
    using = router.db_for_write(Task)
    queues = _first(using)
    claimed = _claimed(using)
    live = Claimant.objects.using(using).filter(seen__gt=Later(-CLAIMANT_ALIVE))
    asking = {
        queue: (count, seconds_of(now - last))
        for queue, count, last, now in live.values_list("queue").annotate(
            count=Count("pk"), last=Max("seen"), read_at=Now()
        )
    }
    tasks = Pages(admin.site, request).list_of(Task)
    waits = lines([queue.pk for queue in queues[:SHOWN]], using)
    rows = [
        # A queue that was deleted meanwhile has no line.
        _row(queue, waits.get(queue.pk, QueueFigures()), claimed[queue.pk], asking.get(queue.pk), tasks)
        for queue in queues[:SHOWN]
    ]
    note = f"The first {SHOWN} queues; there are more." if len(queues) > SHOWN else ""
    return Section("queues", "Queues", HEADS, rows, note=note, empty="There are no queues.")


def _first(using: str) -> list[Queue]:
    """Return the queues to show, and one more if there are more."""
    queues: QuerySet[Queue] = QuerySet(Queue, using=using)
    waits = has_any(queues, lambda tasks: tasks.filter(state_ready=True))
    rows = queues.annotate(
        read_at=Now(),
        waits=ExpressionWrapper(waits, output_field=BooleanField()),
        is_paused=ExpressionWrapper(Q(publish_paused=True) | Q(claim_paused=True), output_field=IntegerField()),
    )
    return list(rows.order_by("-is_paused", "-waits", "name")[: SHOWN + 1])


def _claimed(using: str) -> Counter[int]:
    held: QuerySet[Task] = QuerySet(Task, using=using).filter(state_claim__isnull=False).order_by("state_locked_until")
    return Counter(held.values_list("queue", flat=True)[:CLAIMED])


def _row(
    queue: Queue, line: QueueFigures, claimed: int, asking: tuple[int, float] | None, tasks: str
) -> tuple[Cell, ...]:
    late = line.waited is not None and line.waited > TOO_LONG and queue.gives_tasks
    return (
        Cell(queue.name, f"{tasks}?queue__id__exact={queue.pk}" if tasks else ""),
        Cell(count_text(min(line.waiting, MAX_COUNTED), line.waiting > MAX_COUNTED)),
        Cell.lasting(line.waited, "error" if late else ""),
        Cell(end.short if (end := line.end_of(queue)) else ""),
        Cell(f"{claimed:,}"),
        Cell(f"{asking[0]:,}, asked {span(asking[1])} ago" if asking else "0"),
        Cell(queue.pause_line, level="warning"),
    )
