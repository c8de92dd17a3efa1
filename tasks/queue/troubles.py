"""Troubles of queues: dead letters, and pauses with what waits behind them. Few statements, each with a limit."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import Any

from django.db.models import DateTimeField, IntegerField, OuterRef, Q, Subquery
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from stator.graph.durations import span
from stator.models import Now, Remedy, Trouble
from tasks.queue.expressions import for_each
from tasks.queue.late_ticks import late_schedules, publishes_nothing
from tasks.rows.tables import queue_rows, task_rows

# Rows of one kind are counted up to this number; queues that are named, and paused queues that are read.
COUNTED, SHOWN, MOST_QUEUES = 10_000, 20, 200


class _Count(Subquery):
    template = "(SELECT COUNT(*) FROM (%(subquery)s) line)"
    output_field = IntegerField()


def troubles(using: str) -> list[Trouble]:
    """Return the troubles of the queues in a database: paused ones first, then those with dead letters."""
    return [*_paused(using), *_dead_letters(using)]


def _paused(using: str) -> Iterator[Trouble]:
    tasks = task_rows(using)
    queues = queue_rows(using)

    # Uses the index ``tasks_task_ready_in_queue``, which lacks the state: ready tasks are always pending.
    def behind(queue: OuterRef | int) -> list[Combinable]:
        line = tasks.filter(queue=queue, state_ready=True).order_by("priority")
        since = Coalesce("state_next_attempt", "state_changed", output_field=DateTimeField())
        first = Subquery(line.annotate(since=since).values("since")[:1])
        return [_Count(line.values("pk")[: COUNTED + 1]), first]

    paused = (Q(publish_paused=True) | Q(claim_paused=True)) & (Q(pause_until=None) | Q(pause_until__gt=Now()))
    found = list(queues.filter(paused).annotate(read_at=Now()).order_by("name")[: MOST_QUEUES + 1])
    waits = {pk: rest for pk, *rest in for_each(queues, [queue.pk for queue in found[:SHOWN]], behind)}
    late = _late_ticks(using) if any(queue.publishing_paused for queue in found[:SHOWN]) else {}
    for queue in found[:SHOWN]:
        waiting, oldest = waits.get(queue.pk, (0, None))
        yield _of_pause(queue, waiting, oldest, late.get(queue.pk, []))
    if len(found) > SHOWN:
        count, more = min(len(found), MOST_QUEUES) - SHOWN, len(found) > MOST_QUEUES
        sentence = f"{_bounded_count(count, more)} more queues are paused"
        remedy = Remedy("List", "tasks.queue")
        yield Trouble(
            "queue_paused", "warning", "tasks.Queue", sentence, "tasks.queue", count=count, more=more,
            remedies=(remedy,), command="manage.py tasks queues", covers=("pending",),
        )  # fmt: skip


def _late_ticks(using: str) -> dict[int, list[float]]:
    """Return, by queue, for how many seconds each late tick that cannot be published has been due."""
    found: dict[int, list[float]] = defaultdict(list)
    late = late_schedules(using).filter(publishes_nothing())
    for queue, planned, now in late.values_list("queue", "planned", Now()):
        found[queue].append(max(0.0, (now - planned).total_seconds()))
    return found


def _of_pause(queue: Any, waiting: int, first: datetime | None, late: list[float]) -> Trouble:
    behind = waiting if queue.claiming_paused else 0
    seconds = max(0.0, (queue.read_at - first).total_seconds()) if first is not None and behind else None
    waits = (
        f"; {_bounded_count(min(behind, COUNTED), behind > COUNTED)} {'waits' if behind == 1 else 'wait'}"
        if behind
        else ""
    )
    waits += f", the first for {span(seconds)}" if seconds is not None else ""
    if late:
        noun = "schedule has" if len(late) == 1 else "schedules have"
        waits += f"; {len(late):,} {noun} not fired, the first tick is {span(max(late))} late"
    return Trouble(
        "queue_paused", "warning", "tasks.Queue", f"{queue.what_is_paused} of a queue is paused{waits}", "tasks.queue",
        detail=f"{queue.name} {queue.pause_description}", count=behind, more=behind > COUNTED, since=seconds,
        numbers={"queue": queue.name}, remedies=(Remedy("Resume", "tasks.queue", "queue_resume", (queue.pk,)),),
        command=f"manage.py tasks resume {quote(queue.name)}", covers=("pending",) if queue.claiming_paused else (),
    )  # fmt: skip


def _dead_letters(using: str) -> Iterator[Trouble]:
    tasks = task_rows(using)
    resting = tasks.filter(state="errored", state_ready=False, state_claim=None, whole=None).order_by()
    dead = list(resting.values_list("pk", "queue", "state_changed")[: COUNTED + 1])
    more = len(dead) > COUNTED
    by_queue: dict[int, list[datetime]] = defaultdict(list)
    for _, queue, changed in dead[:COUNTED]:
        by_queue[queue].append(changed)
    worst = sorted(by_queue, key=lambda pk: -len(by_queue[pk]))
    queues = queue_rows(using)
    named = {pk: (name, now) for pk, name, now in queues.filter(pk__in=worst[:SHOWN]).values_list("pk", "name", Now())}
    for pk in worst[:SHOWN]:
        if pk in named:
            yield _of_dead(pk, *named[pk], by_queue[pk], more)
    if rest := sum(len(by_queue[pk]) for pk in worst[SHOWN:]):
        yield Trouble(
            "dead_letters", "warning", "tasks.Task", f"{_bounded_count(rest, more)} dead letters in further queues",
            "tasks.task", count=rest, more=more, command="manage.py tasks dead",
            remedies=(Remedy("List", "tasks.task", query=(("status", "errored"),)),),
        )  # fmt: skip


def _of_dead(pk: int, name: str, now: datetime, changed: list[datetime], more: bool) -> Trouble:
    count, oldest = len(changed), max(0.0, (now - min(changed)).total_seconds())
    query = (("queue__id__exact", str(pk)), ("status", "errored"))
    noun = "task" if count == 1 and not more else "tasks"
    return Trouble(
        "dead_letters", "warning", "tasks.Task",
        f"{_bounded_count(count, more)} {noun} gave up (dead letters), the oldest {span(oldest)} ago", "tasks.task",
        detail=f"in queue {name}", count=count, more=more, since=oldest, numbers={"queue": name},
        remedies=(Remedy("Requeue\N{HORIZONTAL ELLIPSIS}", "tasks.task", "task_requeue", query=query),),
        advice="find the cause, then requeue them", command=f"manage.py tasks requeue --queue {quote(name)}",
    )  # fmt: skip


def _bounded_count(count: int, more: bool) -> str:
    return f"{count:,}{'+' if more else ''}"
