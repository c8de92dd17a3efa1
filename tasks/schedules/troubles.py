"""Troubles of schedules: ticks that are due and have not fired; a paused queue is told with the troubles of queues."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from shlex import quote
from typing import Protocol, cast

from stator.graph.durations import span
from stator.models import Now, Remedy, Trouble
from tasks.queue.late_ticks import late_schedules, publishes_nothing
from tasks.rows.tables import task_rows
from tasks.rows.tasks import TERMINAL

SHOWN = 20


class Ticked(Protocol):
    """The task of a tick; its model imports this module."""

    pk: int
    queue_id: int | None
    key: str
    status: str


class Late(Protocol):
    """A schedule with a late tick, and when it was read; its model imports this module."""

    pk: int
    name: str
    queue_id: int | None
    tick_index: int
    planned: datetime
    read_at: datetime

    def task_key_of(self, index: int) -> str:
        """Return the key of a tick's task."""


def troubles(using: str) -> list[Trouble]:
    """Return at most two troubles: ticks that wait for the task of the tick before, and those that are just late."""
    late = late_schedules(using).exclude(publishes_nothing()).annotate(read_at=Now())
    found = cast("list[Late]", list(late.order_by("planned", "pk")[: SHOWN + 1]))
    if not found:
        return []
    more, shown = len(found) > SHOWN, found[:SHOWN]
    unended = _unended(using, [one for one in shown if one.queue_id is not None and one.tick_index])
    return [*_waiting(shown, unended), *_late([one for one in shown if one.pk not in unended], more=more)]


def _unended(using: str, schedules: Sequence[Late]) -> dict[int, Ticked]:
    """Return, by schedule, the task of the latest tick if it has not ended; of queues in this database only."""
    keys = {one.pk: one.task_key_of(one.tick_index - 1) for one in schedules}
    tasks = task_rows(using)
    # The index on keys begins with the queue.
    going = tasks.filter(queue__in={one.queue_id for one in schedules}, key__in=set(keys.values()))
    read = cast("list[Ticked]", list(going.exclude(state__in=TERMINAL)[: 2 * SHOWN]))
    by_key = {(task.queue_id, task.key): task for task in read}
    of = {one.pk: by_key.get((one.queue_id, keys[one.pk])) for one in schedules}
    return {pk: task for pk, task in of.items() if task is not None}


def _waiting(shown: Sequence[Late], unended: dict[int, Ticked]) -> Iterator[Trouble]:
    schedules = [one for one in shown if one.pk in unended]
    if not schedules:
        return
    tasks = [unended[one.pk] for one in schedules]
    named = ", ".join(f"{one} for task {unended[one.pk].pk} ({unended[one.pk].status})" for one in schedules[:5])
    waits = "waits" if len(schedules) == 1 else "wait"
    yield Trouble(
        "schedule_late", "error", "tasks.Schedule",
        f"{_counted(len(schedules))} {waits} for the task of the tick before, which has not ended; the first tick is "
        f"{span(_age(schedules))} late", "tasks.schedule", detail=named + (", ..." if len(schedules) > 5 else ""),
        count=len(schedules), since=_age(schedules), numbers={"tasks": [task.pk for task in tasks]},
        remedies=(Remedy("Cancel tasks\N{HORIZONTAL ELLIPSIS}", "tasks.task", "task_cancel",
                         tuple(task.pk for task in tasks)),),
        advice="find out why the task does not end, or cancel it; Schedule.overlap says whether ticks wait",
        command=f"manage.py tasks cancel {' '.join(str(task.pk) for task in tasks)} --running",
    )  # fmt: skip


def _late(schedules: Sequence[Late], *, more: bool) -> Iterator[Trouble]:
    if not schedules:
        return
    count = len(schedules)
    noun = "schedule has" if count == 1 and not more else "schedules have"
    names = list(dict.fromkeys(one.name for one in schedules))
    yield Trouble(
        "schedule_late", "error", "tasks.Schedule",
        f"{count}{'+' if more else ''} {noun} not fired a tick that was due up to {span(_age(schedules))} ago",
        "tasks.schedule", detail=", ".join(map(str, schedules[:5])) + (", ..." if count > 5 else ""), count=count,
        more=more, since=_age(schedules),
        remedies=(Remedy("Run now", "tasks.schedule", "run_now", tuple(one.pk for one in schedules)),),
        advice="see the schedule's page for its reason",
        command=f"manage.py tasks schedules {' '.join(map(quote, names))} --run",
    )  # fmt: skip


def _age(schedules: Sequence[Late]) -> float:
    return max(0.0, (schedules[0].read_at - schedules[0].planned).total_seconds())


def _counted(count: int) -> str:
    return f"{count} schedule{'' if count == 1 else 's'}"
