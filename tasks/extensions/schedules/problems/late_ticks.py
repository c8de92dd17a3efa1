"""Problems of schedules: ticks that failed, and ticks that have not fired; a bounded number of rows is read."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from django.db.models import Q, QuerySet

from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import seconds_of, span
from stator.models import AdminAction, Now, Problem
from stator.rows.readings import READINGS, Reading
from stator.statements import is_one_of, united
from stator.texts import count_text, counted, listed
from tasks.extensions.schedules.schedules import without_action
from tasks.models import Schedule, Task
from tasks.rows.clock import Later
from tasks.rows.tasks import READ_AT, TERMINAL

LABEL = "tasks.schedule"

SHOWN = 20

# Seconds after which a due tick is late; seconds within which schedules with a late tick are attempted again; and the
# most schedules that are read at rest, the most in line, and the most that workers hold.
LATE, SOON, READ = 60.0, 90.0, 1000


def failed_ticks(survey: Survey) -> Iterator[Problem]:
    """Find functions whose latest ticks failed, until one succeeds, and schedules that cannot publish their ticks."""
    yield from _of_functions(survey)
    for group in survey.groups:
        if group.label == LABEL and group.state == "waiting":
            yield from _of_queues(survey.using, group)


def _of_functions(survey: Survey) -> Iterator[Problem]:
    # Index ``tasks_schedule_failed_ticks``.
    (failing,) = with_failed(survey.using)
    some = list(failing.annotate(**READ_AT)[: SHOWN + 1])
    # A function is called again at the next tick, and may fail at this moment.
    errors = {pk: group.fingerprint for group in survey.groups if group.label == LABEL for pk in group.failing}
    for one in some[:SHOWN]:
        now = {"errors": {errors[one.pk]: 1}} if one.pk in errors else {}
        yield Problem(
            "", f"the {one.failed_part} of {one} failed", {"ticks": one.failed_ticks, **now},
            "mend the function, then run it now", where="tasks.Schedule", model=LABEL,
            detail=one.last_error, count=1, since=seconds_of(one.read_at - one.fired) if one.fired else None,
            actions=(AdminAction("Run now", LABEL, "run_now", (one.pk,)),),
            command=f"manage.py tasks schedules {quote(one.name)} --run",
        )  # fmt: skip
    if len(some) > SHOWN:
        yield Problem(
            "", "the latest ticks of further schedules failed", where="tasks.Schedule", model=LABEL,
            count=1, more=True, command="manage.py tasks schedules --failed",
        )  # fmt: skip


def _of_queues(using: str, group: Any) -> Iterator[Problem]:
    """Find the schedules with one error: those whose action nobody has, which no attempt mends, and others."""
    rows: QuerySet[Schedule] = QuerySet(Schedule, using=using).filter(pk__in=group.failing)
    failing = list(rows.select_related("queue").annotate(**READ_AT).order_by("planned", "pk"))
    lacking = without_action(failing, using)
    if lacking:
        yield _without_action(lacking, group)
    if others := [one for one in failing if one not in lacking]:
        pks = tuple(one.pk for one in others[:SHOWN])
        yield replace(
            _failing(others, group), remedy="mend what the error says, then retry",
            actions=(AdminAction("Retry now", LABEL, "stator_retry", pks),),
            command=f"manage.py stator retry tasks.Schedule {' '.join(map(str, pks))}",
        )  # fmt: skip


def _without_action(schedules: Sequence[Schedule], group: Any) -> Problem:
    edit = AdminAction("Edit", LABEL, pks=(schedules[0].pk,))
    listed = AdminAction("List", LABEL, query=(("id__in", ",".join(str(one.pk) for one in schedules[: 5 * SHOWN])),))
    names = " ".join(quote(name) for name in {one.name: None for one in schedules[:SHOWN]})
    change = " --action ACTION" if len({one.action for one in schedules}) == 1 else ""
    return replace(
        _failing(schedules, group), remedy="edit the schedule, or deploy code that has its action",
        actions=(edit if len(schedules) == 1 else listed,), command=f"manage.py tasks schedules {names}{change}",
    )  # fmt: skip


def _failing(schedules: Sequence[Schedule], group: Any) -> Problem:
    count = len(schedules)
    noun = "schedule cannot fire its tick" if count == 1 and not group.cut else "schedules cannot fire their ticks"
    return Problem(
        "", f"{count_text(count, group.cut)} {noun}: {group.error}", {"errors": {group.fingerprint: count}},
        where="tasks.Schedule", model=LABEL, detail=f"{listed(schedules)}; {group.message.partition(chr(10))[0]}",
        count=count, more=group.cut, since=_age(schedules) if schedules[0].planned else None,
    )  # fmt: skip


def with_failed(using: str) -> list[QuerySet[Schedule]]:
    """Return the schedules whose latest ticks failed, the most in a row first."""
    schedules: QuerySet[Schedule] = QuerySet(Schedule, using=using)
    failing = schedules.filter(failed_ticks__gt=0, enabled=True, removed=False)
    return [failing.order_by("-failed_ticks", "pk")]


def late_ticks(survey: Survey) -> Iterator[Problem]:
    """Find at most two problems: ticks that wait for the previous tick's task, and ticks that are just late.

    Ticks of a paused queue are reported with the problems of queues, and failing ticks by error.
    """
    late = late_schedules(survey.using).exclude(publishes_nothing()).filter(state_failures=0).annotate(**READ_AT)
    some = list(late.order_by("planned", "pk")[: SHOWN + 1])
    if not some:
        return
    more, shown = len(some) > SHOWN, some[:SHOWN]
    unended = _unended(survey.using, [one for one in shown if one.queue_id is not None and one.tick_index])
    yield from _waiting(shown, unended)
    yield from _late([one for one in shown if one.pk not in unended], more=more)


def connect() -> None:
    """Have the problems of paused queues tell of ticks that wait behind the pauses."""
    READINGS["late ticks"] = Reading(Schedule, behind_pauses)


def behind_pauses(using: str) -> dict[int, str]:
    """Return a phrase about the late ticks that cannot be published, by queue."""
    seconds = defaultdict[int, list[float]](list)
    late = late_schedules(using).filter(publishes_nothing())
    for queue, planned, now in late.values_list("queue", "planned", Now()):
        seconds[queue].append(seconds_of(now - planned))
    return {queue: _not_fired(each) for queue, each in seconds.items()}


def _not_fired(seconds: list[float]) -> str:
    noun = "schedule has" if len(seconds) == 1 else "schedules have"
    return f"{len(seconds):,} {noun} not fired, the first tick is {span(max(seconds))} late"


def late_schedules(using: str) -> QuerySet[Schedule]:
    """Return the schedules with a late tick, even if a worker attempts it at this moment; two statements, or five."""
    read = list(united([part.values_list("pk", flat=True)[:READ] for part in _maybe(using)]))
    schedules: QuerySet[Schedule] = QuerySet(Schedule, using=using)
    return schedules.filter(is_one_of(schedules, read), _is_late()) if read else schedules.none()


def maybe_late(using: str) -> Iterator[QuerySet[Schedule]]:
    """Yield the schedules of :func:`late_schedules`, in parts that indexes have."""
    return (part.filter(_is_late()) for part in _maybe(using))


def _maybe(using: str) -> tuple[QuerySet[Schedule], ...]:
    # Late ticks wait for a paused queue or a task, and are attempted every few seconds. Indexes ``st_rest``,
    # ``st_ready`` and ``st_lease``.
    schedules: QuerySet[Schedule] = QuerySet(Schedule, using=using)
    resting = schedules.filter(state_ready=False, state_claim=None).order_by("state_next_attempt")
    return (
        *(resting.filter(state=state, state_next_attempt__lte=Later(SOON)) for state in ("waiting", "calling")),
        schedules.filter(state_ready=True).order_by(),
        schedules.filter(state_claim__isnull=False).order_by("state_locked_until"),
    )


def _is_late() -> Q:
    # A schedule that is ready or held and was not attempted lately has another problem: no worker, or a silent worker.
    attempted = Q(state_ready=False, state_claim=None) | Q(state_attempted__gte=Later(-SOON))
    return attempted & Q(planned__lte=Later(-LATE), enabled=True, held_until=None, removed=False)


def publishes_nothing() -> Q:
    """Return the condition for schedules with a queue whose publishing is paused, which is a problem of its own."""
    over = Q(queue__pause_until__isnull=False, queue__pause_until__lte=Now())
    return Q(queue__publish_paused=True) & ~over


def _unended(using: str, schedules: Sequence[Schedule]) -> dict[int, Task]:
    """Return, by schedule, the task of the latest tick if it has not ended; only for queues in this database."""
    keys = {one.pk: one.task_key_of(one.tick_index - 1) for one in schedules}
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    # The index on keys begins with the queue.
    going = tasks.filter(queue__in={one.queue_id for one in schedules}, key__in=set(keys.values()))
    read = going.exclude(state__in=TERMINAL)[: 2 * SHOWN]
    by_key: dict[tuple[int | None, str | None], Task] = {(task.queue_id, task.key): task for task in read}
    of = {one.pk: by_key.get((one.queue_id, keys[one.pk])) for one in schedules}
    return {pk: task for pk, task in of.items() if task is not None}


def _waiting(shown: Sequence[Schedule], unended: dict[int, Task]) -> Iterator[Problem]:
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
        where="tasks.Schedule", model=LABEL, detail=named + (", ..." if len(schedules) > 5 else ""),
        count=len(schedules), since=_age(schedules),
        actions=(AdminAction("Cancel tasks\N{HORIZONTAL ELLIPSIS}", "tasks.task", "task_cancel",
                             tuple(task.pk for task in tasks)),),
        command=f"manage.py tasks cancel {' '.join(str(task.pk) for task in tasks)} --running",
    )  # fmt: skip


def _late(schedules: Sequence[Schedule], *, more: bool) -> Iterator[Problem]:
    if not schedules:
        return
    count = len(schedules)
    noun = "schedule has" if count == 1 and not more else "schedules have"
    pks = tuple(one.pk for one in schedules)
    yield Problem(
        "", f"{count}{'+' if more else ''} {noun} not fired a tick that was due up to {span(_age(schedules))} ago",
        where="tasks.Schedule", model=LABEL, remedy="see the schedule's page for its reason",
        detail=listed(schedules), count=count, more=more,
        since=_age(schedules),
        actions=(AdminAction("Retry now", LABEL, "stator_retry", pks),),
        command=f"manage.py stator retry tasks.Schedule {' '.join(map(str, pks))}",
    )  # fmt: skip


def _age(schedules: Sequence[Schedule]) -> float:
    planned = schedules[0].planned
    return seconds_of(schedules[0].read_at - planned) if planned else 0.0
