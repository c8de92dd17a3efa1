"""The workers' part of schedules: fire ticks that are due, and plan the next."""

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django.db.models import F, Model, QuerySet
from django.utils.timezone import is_naive, make_aware

from stator.claims import bounded
from stator.exceptions import TryAgainLater
from stator.models import Now
from stator.rows.readings import read
from tasks.datetimes import aware, stored
from tasks.exceptions import QueuePaused, UnknownAction
from tasks.extensions.schedules.periodic import Tick, registry
from tasks.extensions.schedules.rates import Rate, keep_rates, lock_rates
from tasks.extensions.schedules.rows import ALLOW, DROP, ERROR_LENGTH, ScheduleRow
from tasks.extensions.schedules.timetable import Due, Planned, judge, judge_last
from tasks.queue.serving import processes_in
from tasks.rows.queues import QueueRow
from tasks.rows.tasks import TERMINAL

if TYPE_CHECKING:
    from tasks.models import Schedule

# Seconds until the next attempt if this worker lacks the schedule's function; another worker may have it.
ELSEWHERE = 60.0

# Seconds until the next attempt if this worker lacks the task's action, but another live worker has it.
OTHER_CODE = 2.0

# Seconds between checks whether a paused queue takes tasks again.
PAUSED = 10.0

# Seconds between checks whether the task of the previous tick has ended.
UNENDED = 2.0

# The columns of ``PROGRESS`` that are moments.
MOMENTS = ("nominal", "planned", "held_until", "fired", "fired_for")
# How the reason begins of a tick that waits for its rate.
WAITS_FOR_RATE = "waits for its turn"

PROGRESS = ("tick_index", "nominal", "planned", "planned_for", "held_until", "asked", "fired", "fired_for", "dropped")

# The columns about ticks that have failed.
FAILURES = ("failed_ticks", "last_error", "notice_due")

chance = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Clock:
    """The database's time, and this process's monotonic time when it was read."""

    now: datetime
    read: float

    def until(self, moment: datetime) -> float:
        """Return the seconds from now until a moment, at least 0."""
        return max(0.0, (moment - self.now).total_seconds() - (time.monotonic() - self.read))


@dataclass(frozen=True, slots=True)
class Advance:
    """The result for one schedule: its next state, or until when it waits; and the index of the tick it fires."""

    to: str = ""
    until: datetime | None = None
    reason: str = ""
    index: int | None = None


def tick(schedules: "list[Schedule]") -> "dict[Schedule, str | TryAgainLater]":
    """Fire and plan a batch of schedules in the open transaction, which has locked their rows.

    Return the next state of each, or ``TryAgainLater`` until its next tick.
    """
    using = str(schedules[0]._state.db)
    rows: QuerySet[Any] = QuerySet(type(schedules[0]), using=using)
    # The claimed rows may have been edited since; read them again now that they are locked.
    locked = rows.filter(pk__in=[schedule.pk for schedule in schedules]).select_related("queue")
    current = [_with_zones(row) for row in locked.annotate(now=Now())]
    clock = Clock(current[0].now, time.monotonic())
    rates: dict[str, Rate] = {}
    if keys := {row.rate_key for row in current if row.rate_limit}:
        rates, now = lock_rates(using, keys)
        clock = Clock(now, time.monotonic())
    unended = _unended(current)
    steps = [(row, _advance(row, clock.now, rates, row.pk in unended)) for row in current]
    _publish([(row, step.index) for row, step in steps if step.index is not None and row.queue])
    for row in current:
        # One UPDATE for each row: Django takes ten times as long to build one statement with a CASE for each column.
        rows.filter(pk=row.pk).update(**_kept(row, using))
    keep_rates(using, rates)
    return {row: _result(step, clock) for row, step in steps}


def _with_zones(row: "Schedule") -> "Schedule":
    for name in ("now", *MOMENTS):
        if (moment := getattr(row, name)) is not None:
            setattr(row, name, aware(moment))
    # People enter this time, and mean the site's zone.
    if row.until is not None and is_naive(row.until):
        row.until = make_aware(row.until)
    return row


def _kept(row: ScheduleRow, using: str) -> dict[str, object]:
    values = {name: getattr(row, name) for name in PROGRESS}
    return values | {name: stored(values[name], using) for name in MOMENTS if values[name] is not None}


def call(schedule: "Schedule") -> None:
    """Call the schedule's function for its latest tick; raise ``TryAgainLater`` if this code does not have it."""
    known = registry.get(schedule.name)
    if known is None:
        raise TryAgainLater(ELSEWHERE, f"this worker's code has no periodic function {schedule.name}")
    index = schedule.tick_index - 1
    known.call(Tick(schedule, index, schedule.fired_for, schedule.key_of(index)))
    if schedule.failed_ticks:
        _row_of(schedule).update(failed_ticks=0, last_error="", notice_due=None)


def count_failure(schedule: ScheduleRow) -> None:
    """Count the latest tick as failed; a notice of the first of several in a row becomes due."""
    report = read("report", str(schedule._state.db), type(schedule), schedule.pk, otherwise=None)
    error = f"{report.error}: {report.message}" if report and report.error else "no error is recorded"
    _row_of(schedule).update(
        failed_ticks=F("failed_ticks") + 1,
        last_error=bounded(" ".join(error.split()), ERROR_LENGTH),
        notice_due=F("notice_due") if schedule.failed_ticks else Now(),
    )


def _row_of(schedule: ScheduleRow) -> QuerySet[Model]:
    return QuerySet(type(schedule), using=schedule._state.db).filter(pk=schedule.pk)


def _unended(rows: "list[Schedule]") -> set[int]:
    """Return the keys of the schedules that do not allow overlap and have a latest task that has not ended."""
    unended: set[int] = set()
    exclusive = [row for row in rows if row.queue and row.overlap != ALLOW and row.tick_index]
    for _, group in groupby(sorted(exclusive, key=attrgetter("queue_id")), key=attrgetter("queue_id")):
        ticked = list(group)
        latest = {row.pk: row.task_key_of(row.tick_index - 1) for row in ticked}
        tasks = ticked[0].queue.tasks.filter(key__in=set(latest.values())).exclude(state__in=TERMINAL)
        # Schedules with the same ``task_key`` share a task.
        keys = set(tasks.values_list("key", flat=True))
        unended |= {pk for pk, key in latest.items() if key in keys}
    return unended


def _advance(row: ScheduleRow, now: datetime, rates: dict[str, Rate], unended: bool) -> Advance:
    """Update a row's tick columns in memory; return what to do. ``unended``: its latest task has not ended."""
    if not row.enabled or row.removed:
        _forget(row)
        return Advance(to="paused")
    due = _due(row, now)
    # A due tick comes first; a requested one fires at the next attempt.
    fires = due.fires or (Planned(now, now) if row.asked else None)
    row.dropped += due.dropped
    if fires and unended:
        if row.overlap == DROP:
            row.dropped += due.fires is not None
            due = Due(None, due.following)
        if due.fires or row.asked:
            # Checked again soon, because the end of a task does not wake its schedule.
            _plan(row, due.fires or due.following)
            until = now + timedelta(seconds=UNENDED)
            return Advance(until=until, reason=f"waits for the task of tick {row.tick_index - 1}, which has not ended")
        fires = None
    if fires and row.rate_limit and (held := rates[row.rate_key].admit(now, row.rate_limit, row.held_until)):
        _plan(row, due.fires or due.following)
        row.held_until = held
        return Advance(until=held, reason=f"{WAITS_FOR_RATE}: {row.rate_key} has {row.rate_limit:g} ticks a second")
    _plan(row, due.following)
    if fires:
        row.tick_index, row.fired, row.fired_for = row.tick_index + 1, now, fires.at
        row.asked = row.asked and due.fires is not None
    index = row.tick_index - 1 if fires else None
    if fires and row.calls_function:
        return Advance(to="calling", index=index)
    if row.asked:
        return Advance(until=now, index=index)
    if row.planned is None:
        _forget(row)
        return Advance(to="ended", index=index)
    return Advance(until=row.planned, index=index)


def _due(row: ScheduleRow, now: datetime) -> Due:
    """Return what is due now; if the timetable has changed, plan anew."""
    timetable, planned = row.timetable, Planned(row.nominal, row.planned) if row.planned else None
    if row.until and planned and row.until < planned.at:
        return Due(None, None)
    if row.planned_for != row.plan_key:
        if problem := next(iter(row.problems().values()), None):
            raise ValueError(problem)
        if not planned or _places(row.planned_for) != _places(row.plan_key):
            return _begin(row, planned, now)
        planned = planned if planned.at <= now else timetable.redrawn(planned, now, chance)
    if planned is None:
        return Due(None, None)
    return judge(timetable, planned, now, missed=row.missed, deadline=row.deadline, until=row.until, chance=chance)


def _places(plan_key: str) -> str:
    """Return the part of a plan key that determines the places of ticks: all but the jitter."""
    return plan_key.rpartition(" ")[0]


def _begin(row: ScheduleRow, planned: Planned | None, now: datetime) -> Due:
    """Return what is due under a new timetable; a tick that was due before the change still fires."""
    first = row.timetable.first(now, chance)
    return judge_last(planned, first, now, missed=row.missed, deadline=row.deadline) if planned else Due(None, first)


def _plan(row: ScheduleRow, planned: Planned | None) -> None:
    if planned and row.until and row.until < planned.at:
        planned = None
    row.planned_for, row.held_until = row.plan_key, None
    row.nominal, row.planned = (planned.nominal, planned.at) if planned else (None, None)


def _forget(row: ScheduleRow) -> None:
    """Discard the plan, so that the schedule is planned again when it resumes."""
    row.planned_for, row.nominal, row.planned, row.held_until = "", None, None, None


def _publish(fired: list[tuple[ScheduleRow, int]]) -> None:
    """Publish the tasks of ticks. If a tick is published twice, the key of its task removes the duplicate."""
    for _, same in groupby(sorted(fired, key=_queue_of), key=_queue_of):
        ticks = list(same)
        try:
            ticks[0][0].queue.publish_many([_message(row, index) for row, index in ticks])
        except QueuePaused as paused:
            # This rolls the transaction back without an error; then each schedule of the batch is attempted alone.
            raise TryAgainLater(PAUSED, str(paused)) from None
        except UnknownAction as unknown:
            if not _is_elsewhere(ticks[0][0].queue, {row.action for row, _ in ticks}):
                raise
            raise TryAgainLater(OTHER_CODE, f"{unknown}; another worker has it, and will fire the tick") from None


def _is_elsewhere(queue: QueueRow, actions: set[str]) -> bool:
    """Return whether a live worker process has the actions, so that it can fire the ticks."""
    return any(actions <= (process.names(queue) or set()) for process in processes_in(str(queue._state.db)))


def _queue_of(fired: tuple[ScheduleRow, int]) -> int:
    return int(fired[0].queue.pk)


def _message(row: ScheduleRow, index: int) -> dict[str, object]:
    metadata = row.metadata_of(row.pk, index, row.fired_for.isoformat())
    own = {name: getattr(row, name) for name in ("priority", "timeout", "max_attempts")}
    return {"action": row.action, "data": row.data, "key": row.task_key_of(index), "metadata": metadata, **own}


def _result(step: Advance, clock: Clock) -> str | TryAgainLater:
    if step.until is None:
        return step.to
    return TryAgainLater(clock.until(step.until), step.reason)
