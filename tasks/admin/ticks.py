"""Ticks of a schedule for its page: the next ones, and the tasks of the latest ones."""

import random
from dataclasses import dataclass
from datetime import datetime

from stator.graph.durations import span
from tasks.datetimes import aware
from tasks.models import Schedule, Task
from tasks.schedules.timetable import Planned

# Ticks that are shown on each side of the present.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class ShownTick:
    """A tick that fired: its number and its task, if that still exists."""

    index: int
    task: Task | None
    took: str = ""


def next_ticks(schedule: Schedule) -> list[datetime]:
    """Return when the next ticks are due, without jitter from the second one on; none if it is paused or has ended."""
    if not schedule.enabled or schedule.removed or schedule.planned is None or schedule.nominal is None:
        return []
    tick = Planned(aware(schedule.nominal), aware(schedule.planned))
    due, chance, timetable = [tick.at], random.Random(0), schedule.timetable
    until = aware(schedule.until) if schedule.until else None
    while len(due) < SHOWN:
        following = timetable.following(tick, chance)
        if following is None:
            break
        tick = following
        due.append(tick.nominal)
    return [moment for moment in due if until is None or moment <= until]


def latest_ticks(schedule: Schedule) -> list[ShownTick]:
    """Return the latest ticks and their tasks, newest first; none if the schedule calls a function. One statement."""
    if schedule.queue_id is None:
        return []
    indexes = range(schedule.tick_index - 1, max(-1, schedule.tick_index - 1 - SHOWN), -1)
    keys = {schedule.task_key_of(index): index for index in indexes}
    # The index on keys begins with the queue.
    tasks = Task.objects.using(schedule._state.db).filter(queue=schedule.queue_id, key__in=list(keys))
    by_index = {keys[task.key]: task for task in tasks[:SHOWN]}
    return [ShownTick(index, by_index.get(index), _took(by_index.get(index))) for index in indexes]


def _took(task: Task | None) -> str:
    if task is None or task.status not in ("completed", "errored", "canceled"):
        return ""
    return span((task.state_changed - task.created).total_seconds())
