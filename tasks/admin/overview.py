"""The queues section of the admin's overview: what waits in each queue, since when, and what is paused."""

from collections import Counter
from typing import Any

from django.contrib import admin
from django.db import connections, router
from django.db.models import (
    Count,
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)  # fmt: skip
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse

from stator.admin import Cell, Section
from stator.capabilities import capabilities_of
from stator.graph.durations import span
from stator.models import Now
from tasks.models import Claimant, Queue, Task
from tasks.queue.expressions import for_each
from tasks.rows.claimants import CLAIMANT_ALIVE
from tasks.rows.clock import Later

# The most queues that are shown: paused ones first, then those with waiting tasks, then the rest, each by name.
SHOWN = 50

# Limits of counting: waiting tasks in each queue, and claimed tasks in all queues together.
COUNTED, CLAIMED = 10_000, 5000

# A longer wait, in seconds, is highlighted.
TOO_LONG = 300.0

HEADS = ("Queue", "Waiting", "Longest wait", "Claimed", "Named workers", "Pauses")


class Counted(Subquery):
    """The number of rows of a subquery, which carries its own limit."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) stator_counted)"
    output_field = IntegerField()


def section_of_queues(request: HttpRequest) -> Section | None:
    """Return the section for users who may view queues or tasks: three or four statements, however many queues."""
    if not (request.user.has_perm("tasks.view_queue") or request.user.has_perm("tasks.view_task")):
        return None
    using = router.db_for_write(Task)
    found = _first(using)
    claimed = _claimed(using)
    live = Claimant.objects.using(using).filter(seen__gt=Later(-CLAIMANT_ALIVE))
    asking = {
        queue: (count, (now - last).total_seconds())
        for queue, count, last, now in live.values_list("queue").annotate(
            count=Count("pk"), last=Max("seen"), read_at=Now()
        )
    }
    tasks = _list_of_tasks(request)
    rows = [_row(queue, claimed[queue.pk], asking.get(queue.pk), tasks) for queue in found[:SHOWN]]
    note = f"The first {SHOWN} queues; there are more." if len(found) > SHOWN else ""
    return Section("queues", "Queues", HEADS, rows, note=note, empty="There are no queues.")


def _read(using: str) -> QuerySet[Any]:
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    # Uses the index ``tasks_task_ready_in_queue``, which lacks the state: ready tasks are always pending.
    waiting = tasks.filter(queue=OuterRef("pk"), state_ready=True)
    since = Coalesce("state_next_attempt", "state_changed", output_field=DateTimeField())
    first = Subquery(waiting.order_by("priority", "pk").annotate(since=since).values("since")[:1])
    paused = Q(publish_paused=True) | Q(claim_paused=True)
    rows: QuerySet[Any] = QuerySet(Queue, using=using).annotate(
        read_at=Now(),
        waits=Exists(waiting),
        waited=ExpressionWrapper(Now() - first, output_field=DurationField()),
        is_paused=ExpressionWrapper(paused, output_field=IntegerField()),
    )
    if capabilities_of(connections[using]).has_outer_references:
        rows = rows.annotate(waiting=Counted(waiting.values("pk")[: COUNTED + 1]))
    return rows.order_by("-is_paused", "-waits", "name")


def _first(using: str) -> list[Queue]:
    """Return the queues to show; on MariaDB by one more statement, since a query in FROM cannot refer to the queue."""
    found = list(_read(using)[: SHOWN + 1])
    if not capabilities_of(connections[using]).has_outer_references:
        tasks: QuerySet[Task] = QuerySet(Task, using=using)

        def waiting(queue: OuterRef | int) -> list[Combinable]:
            return [Counted(tasks.filter(queue=queue, state_ready=True).values("pk")[: COUNTED + 1])]

        rows = for_each(QuerySet(Queue, using=using), [queue.pk for queue in found], waiting)
        counts = {pk: count for pk, count, *_ in rows}
        for queue in found:
            # A queue that was deleted meanwhile has no row.
            queue.waiting = counts.get(queue.pk, 0)
    return found


def _claimed(using: str) -> Counter[int]:
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    held = tasks.filter(state_claim__isnull=False).order_by("state_locked_until")
    return Counter(held.values_list("queue", flat=True)[:CLAIMED])


def _row(queue: Any, claimed: int, asking: tuple[int, float] | None, tasks: str) -> tuple[Cell, ...]:
    waited = max(0.0, queue.waited.total_seconds()) if queue.waited is not None else None
    late = waited is not None and waited > TOO_LONG and not queue.claiming_paused
    return (
        Cell(queue.name, f"{tasks}?queue__id__exact={queue.pk}" if tasks else ""),
        Cell(f"{COUNTED:,}+" if queue.waiting > COUNTED else f"{queue.waiting:,}"),
        Cell.lasting(waited, "error" if late else ""),
        Cell(f"{claimed:,}"),
        Cell(f"{asking[0]:,}, asked {span(max(0.0, asking[1]))} ago" if asking else "0"),
        Cell(queue.pause_line, level="warning"),
    )


def _list_of_tasks(request: HttpRequest) -> str:
    """Return the URL of the list of tasks; empty if the user may not view it."""
    if not (admin.site.is_registered(Task) and request.user.has_perm("tasks.view_task")):
        return ""
    return reverse("admin:tasks_task_changelist")
