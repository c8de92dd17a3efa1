"""Problems of schedules: ticks that are due and have not fired; a bounded number of rows is read."""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from django.db.models import Q, QuerySet

from stator.graph.durations import seconds_of, span
from stator.models import AdminAction, Now, Problem, Survey
from stator.texts import counted
from tasks.models import Schedule, Task
from tasks.rows.clock import Later
from tasks.rows.tasks import TERMINAL

SHOWN = 20

# Seconds after which a due tick is late; seconds within which schedules with a late tick are attempted again; and the
# most schedules that are read at rest, the most in line, and the most that workers hold.
LATE, SOON, READ = 60.0, 90.0, 1000


def late_ticks(survey: Survey) -> Iterator[Problem]:
    """Find at most two problems: ticks that wait for the previous tick's task, and ticks that are just late.

    Ticks of a paused queue are reported with the problems of queues.
    """
    late = late_schedules(survey.using).exclude(publishes_nothing()).annotate(read_at=Now())
    found: list[Any] = list(late.order_by("planned", "pk")[: SHOWN + 1])
    if not found:
        return
    more, shown = len(found) > SHOWN, found[:SHOWN]
    unended = _unended(survey.using, [one for one in shown if one.queue_id is not None and one.tick_index])
    yield from _waiting(shown, unended)
    yield from _late([one for one in shown if one.pk not in unended], more=more)


def late_schedules(using: str) -> QuerySet[Schedule]:
    """Return the schedules with a late tick, also those that a worker attempts at this moment; four statements."""
    schedules: QuerySet[Schedule] = QuerySet(Schedule, using=using)
    # Late ticks wait for a paused queue or a task, and are attempted every few seconds. Indexes ``st_rest``,
    # ``st_ready`` and ``st_lease``.
    resting = schedules.filter(state_ready=False, state_claim=None, state="waiting").order_by("state_next_attempt")
    parts = (
        resting.filter(state_next_attempt__lte=Later(SOON)),
        schedules.filter(state_ready=True).order_by(),
        schedules.filter(state_claim__isnull=False).order_by("state_locked_until"),
    )
    read = [pk for part in parts for pk in part.values_list("pk", flat=True)[:READ]]
    # A schedule that is ready or held and was not attempted lately has another problem: no worker, or a silent worker.
    attempted = Q(state_ready=False, state_claim=None) | Q(state_attempted__gte=Later(-SOON))
    late = schedules.filter(attempted, pk__in=read, planned__lte=Later(-LATE), enabled=True)
    return late.filter(held_until=None, removed=False)


def publishes_nothing() -> Q:
    """Return the condition for schedules with a queue whose publishing is paused, which is a problem of its own."""
    over = Q(queue__pause_until__isnull=False, queue__pause_until__lte=Now())
    return Q(queue__publish_paused=True) & ~over


def _unended(using: str, schedules: Sequence[Any]) -> dict[int, Task]:
    """Return, by schedule, the task of the latest tick if it has not ended; only for queues in this database."""
    keys = {one.pk: one.task_key_of(one.tick_index - 1) for one in schedules}
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    # The index on keys begins with the queue.
    going = tasks.filter(queue__in={one.queue_id for one in schedules}, key__in=set(keys.values()))
    read = going.exclude(state__in=TERMINAL)[: 2 * SHOWN]
    by_key = {(task.queue_id, task.key): task for task in read}
    of = {one.pk: by_key.get((one.queue_id, keys[one.pk])) for one in schedules}
    return {pk: task for pk, task in of.items() if task is not None}


def _waiting(shown: Sequence[Any], unended: dict[int, Task]) -> Iterator[Problem]:
    schedules = [one for one in shown if one.pk in unended]
    if not schedules:
        return
    tasks = [unended[one.pk] for one in schedules]
    named = ", ".join(f"{one} for task {unended[one.pk].pk} ({unended[one.pk].status})" for one in schedules[:5])
    waits = "waits" if len(schedules) == 1 else "wait"
    yield Problem(
        "", f"{counted(len(schedules), 'schedule')} {waits} for the task of the tick before, which has not ended; the "
        f"first tick is {span(_age(schedules))} late", {"tasks": [task.pk for task in tasks]},
        "find out why the task does not end, or cancel it; Schedule.overlap says whether ticks wait",
        where="tasks.Schedule", model="tasks.schedule", detail=named + (", ..." if len(schedules) > 5 else ""),
        count=len(schedules), since=_age(schedules),
        actions=(AdminAction("Cancel tasks\N{HORIZONTAL ELLIPSIS}", "tasks.task", "task_cancel",
                             tuple(task.pk for task in tasks)),),
        command=f"manage.py tasks cancel {' '.join(str(task.pk) for task in tasks)} --running",
    )  # fmt: skip


def _late(schedules: Sequence[Any], *, more: bool) -> Iterator[Problem]:
    if not schedules:
        return
    count = len(schedules)
    noun = "schedule has" if count == 1 and not more else "schedules have"
    names = list(dict.fromkeys(one.name for one in schedules))
    yield Problem(
        "", f"{count}{'+' if more else ''} {noun} not fired a tick that was due up to {span(_age(schedules))} ago",
        where="tasks.Schedule", model="tasks.schedule", remedy="see the schedule's page for its reason",
        detail=", ".join(map(str, schedules[:5])) + (", ..." if count > 5 else ""), count=count, more=more,
        since=_age(schedules),
        actions=(AdminAction("Run now", "tasks.schedule", "run_now", tuple(one.pk for one in schedules)),),
        command=f"manage.py tasks schedules {' '.join(map(quote, names))} --run",
    )  # fmt: skip


def _age(schedules: Sequence[Any]) -> float:
    return seconds_of(schedules[0].read_at - schedules[0].planned)
