"""Twelve situations in which an operator is called at night, in one site with more rows than are counted.

Each says what it injects, the sentence that has to be shown about it, and whether it is mended.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from stator.extensions.related.waits import parking
from stator.models import Pause, StatorModel, Worker
from stator.rows import columns
from stator.rows.meta import managed
from stator.testing import attempt
from tasks.models import Queue, Schedule
from tasks.queue.serving import registered
from tests.stator.making import ago, change, put, raw
from tests.testapp.operators import ERRORS, Letter, Parcel
from tests.testapp.power import Visitor
from tests.testapp.waiting import Build, Rollout

# Counts end at half of it. Pages on a table of 100,000 have tests of their own.
MANY = 20_000

# One that is silent, and one that lives and holds what it never ends.
SILENT, HANGING = "dead0dead0de", "beefbeefbeef"

# Durations that were so long when they were injected; a busy machine may take minutes until they are shown.
FIVE, SEVEN, FORTY = r"([5-9]|1\d) m( \d+ s)?", r"([7-9]|1\d) m( \d+ s)?", r"[45]\d m( \d+ s)?"
TWO_HOURS, TWO_DAYS = r"2 h( \d+ m)?", "2 d"


@dataclass(frozen=True, slots=True)
class Situation:
    """One situation. ``words``: a pattern of what is shown. ``mended``: whether the facts say that it is over."""

    name: str
    code: str
    words: str
    mended: Callable[[], bool]
    count: int = 1

    def is_told_by(self, text: str) -> bool:
        """Return whether a text says it."""
        return bool(re.search(self.words, " ".join(text.split())))


def fill(count: int = MANY) -> None:
    """Deliver so many parcels, by one statement."""
    model = put(Parcel, state="delivered", state_ready=False)
    names = ", ".join(field.column for field in Parcel._meta.concrete_fields if not field.primary_key)
    table = Parcel._meta.db_table
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {int(count)}) SELECT i FROM n"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} CROSS JOIN ({numbers}) numbers WHERE id = %s",
            [model.pk],
        )


def inject() -> list[Situation]:
    """Have all twelve stand at once; return them."""
    crew()
    return [
        *errors(),
        killer(),
        silent_worker(),
        paused_model(),  # stator.extensions.pauses
        waiting(),
        full_limit(),  # stator.extensions.limits
        unknown_state(),
        far_future(),
        dead_letters(),
        late_schedule(),  # tasks.extensions.schedules
        misspelled_action(),
        waiting_tick(),  # tasks.extensions.schedules
    ]


def crew() -> None:
    """A worker that lives for an hour more, whatever happens, and serves every model."""
    models = [model._meta.label_lower for model in managed(StatorModel.subclasses)]
    common = {"version": "1", "models": models, "database": "default"}
    actions = {"tasks": {"actions": registered()}}
    Worker.objects.create(
        id=HANGING, host="web-1", pid=41, heartbeat=ago(-3600), started=ago(7200), published=actions, **common
    )
    Worker.objects.create(id=SILENT, host="web-2", pid=42, heartbeat=ago(420), started=ago(7200), **common)


def token(worker: str, number: int) -> UUID:
    return UUID(int=(int(worker, 16) << 80) | number)


def hold(row: Any, worker: str, number: int, since: float) -> None:
    change(
        row, state_ready=False, state_claim=token(worker, number), state_attempted=ago(since), state_attempts=1,
        state_locked_until=ago(-3600),
    )  # fmt: skip


def errors() -> list[Situation]:
    """Three parcels fail with each of four errors, and are not due for an hour."""
    found = []
    for orders, error in {"fail": ValueError, **ERRORS}.items():
        parcels = [Parcel.objects.create(orders=orders, address="no such street") for _ in range(3)]
        for parcel in parcels:
            attempt(parcel)
            change(parcel, state_next_attempt=columns.after(3600), state_ready=False)
        rows = raw(Parcel).filter(pk__in=[parcel.pk for parcel in parcels])
        words = rf"testapp\.Parcel:? 3 failing in packed with {error.__name__}: '?no such street"
        found.append(Situation(f"errors: {error.__name__}", "failing", words, _none(rows, state_failures__gt=0), 3))
    return found


def killer() -> Situation:
    """A parcel during whose attempts three workers died."""
    parcel = put(Parcel, state="stamped", state_crashes=3, state_attempts=3, state_changed=ago(500))
    words = r"testapp\.Parcel:? 1 quarantined: workers died while they attempted it, so none attempts it again"
    return Situation("kills its worker", "quarantined", words, _none(raw(Parcel).filter(pk=parcel.pk), state_crashes=3))


def silent_worker() -> Situation:
    """A worker that was stopped seven minutes ago and still holds three parcels."""
    parcels = [put(Parcel, state="stamped") for _ in range(3)]
    for number, parcel in enumerate(parcels):
        hold(parcel, SILENT, number, 430)
    words = (
        rf"web-2, process 42, is silent for {SEVEN}; it holds 3 objects \(3 of testapp\.Parcel\), "
        r"which live workers take over after their leases, within (1 h|[45]\d m( \d+ s)?)"
    )
    rows = raw(Parcel).filter(pk__in=[parcel.pk for parcel in parcels])
    return Situation("silent worker", "silent_worker", words, _none(rows, state_claim__isnull=False), 3)


def paused_model() -> Situation:
    """A pause of all letters, behind which five have waited for two hours."""
    for number in range(5):
        put(Letter, number=f"paused {number}", state_changed=ago(7200))
    Pause.objects.create(model_label="testapp.letter", actor="anna", reason="the disk is full", created=ago(7260))
    words = (
        rf"testapp\.Letter:? paused: all states by anna for {TWO_HOURS}, without an end \(the disk is full\); 5 wait; "
        rf"the first has waited {TWO_HOURS}"
    )
    return Situation("paused model", "paused", words, _none(Pause.objects.active(), model_label="testapp.letter"), 5)


def waiting() -> Situation:
    """Four rollouts have waited for two days for a build that somebody has to approve."""
    build = put(Build, state="checked", state_ready=False, state_changed=ago(600))
    for number in range(4):
        rollout = put(Rollout, build=build, name=f"waits {number}", state="started", state_changed=ago(2 * 86400))
        change(rollout, **parking())
    words = (
        r"testapp\.Rollout:? 4 wait in started for one testapp\.Build, which is in checked; the first has waited "
        rf"{TWO_DAYS}: #{build.pk} has to be in built or broken"
    )
    return Situation("waits for another", "waiting", words, _none(raw(Build).filter(pk=build.pk), state="checked"), 4)


def full_limit() -> Situation:
    """Two visitors have been held for 40 minutes by a worker that lives, and 40 wait for their places."""
    held = [put(Visitor) for _ in range(2)]
    for number, visitor in enumerate(held):
        hold(visitor, HANGING, number, 2400)
    for _ in range(40):
        put(Visitor, state_changed=ago(300))
    words = (
        rf"testapp\.Visitor:? 40 wait in queued: limit 2 of 2; the first has waited {FIVE}: held by #{held[0].pk}, "
        rf"#{held[1].pk}, the longest for {FORTY}"
    )
    rows = raw(Visitor).filter(pk__in=[visitor.pk for visitor in held])
    return Situation("full limit", "full_limit", words, _none(rows, state_claim__isnull=False), 40)


def unknown_state() -> Situation:
    """Two parcels are in a state that no code has."""
    parcels = [put(Parcel, state_ready=False) for _ in range(2)]
    for parcel in parcels:
        change(parcel, state="mislaid")
    words = r"testapp\.Parcel:? 2 in a state that neither this code nor a live worker knows: mislaid"
    return Situation("unknown state", "unknown_state", words, _none(raw(Parcel), state="mislaid"), 2)


def far_future() -> Situation:
    """A parcel is due in two years."""
    parcel = put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-2 * 365 * 86400))
    words = (
        rf"testapp\.Parcel:? 1 in stamped is due in more than a year, the first on \d{{4}}-\d\d-\d\d .*: #{parcel.pk}"
    )
    rows = raw(Parcel).filter(pk=parcel.pk)
    return Situation("due in two years", "far_future", words, _none(rows, state_next_attempt__gt=ago(-86400)))


def dead_letters() -> Situation:
    """14 tasks of a queue gave up two hours ago."""
    queue = Queue.objects.create(name="encode", actions_elsewhere=True)
    for number in range(14):
        task = queue.publish("resize", {"image": number}).task
        change(task, state="errored", state_ready=False, state_changed=ago(7200))
    words = (
        r"tasks\.Task:? 14 tasks gave up \(dead letters\) and rest until requeued, "
        rf"the oldest {TWO_HOURS} ago: in queue encode"
    )
    return Situation("dead letters", "dead_letters", words, _none(queue.tasks, state="errored"), 14)


def late_schedule() -> Situation:
    """A schedule has not fired for two hours, because publishing to its queue is paused."""
    queue = Queue.objects.create(name="nightly", actions_elsewhere=True)
    schedule = Schedule.objects.create(name="report", queue=queue, action="echo", period=86400)
    moment = ago(7200)
    change(
        schedule, planned=moment, nominal=moment, planned_for=schedule.plan_key, state_ready=False,
        state_next_attempt=ago(-10),
    )  # fmt: skip
    queue.pause(publish=True, claim=False, reason="the printer is broken", author="bob")
    words = (
        rf"tasks\.Queue:? publishing of a queue is paused; 1 schedule has not fired, the first tick is "
        rf"{TWO_HOURS} late: nightly paused by bob"
    )
    return Situation("schedule does not fire", "queue_paused", words, _none(Queue.objects, publish_paused=True))


def misspelled_action() -> Situation:
    """A schedule whose tick cannot fire, since nobody has its action."""
    queue = Queue.objects.create(name="monthly", actions_elsewhere=True)
    schedule = Schedule.objects.create(name="bill", queue=queue, action="ehco", period=86400)
    Queue.objects.filter(pk=queue.pk).update(actions_elsewhere=False)
    attempt(schedule)
    schedule.run_now()
    attempt(schedule)
    # Its error is not told while a worker attempts it once more, which would be a second later.
    change(schedule, state_ready=False, state_next_attempt=ago(-600))
    words = (
        r"tasks\.Schedule:? 1 schedule cannot fire its tick: tasks\.exceptions\.UnknownAction: bill; "
        "no action 'ehco' is registered for queue monthly"
    )
    rows = Schedule.objects.filter(pk=schedule.pk)
    return Situation("misspelled action", "ticks_failed", words, _none(rows, action="ehco"))


def waiting_tick() -> Situation:
    """A tick has waited for five minutes for the task of the one before, which never ends."""
    queue = Queue.objects.create(name="weekly")
    schedule = Schedule.objects.create(name="tidy", queue=queue, action="echo", period=86400)
    task = queue.publish("echo", key=schedule.task_key_of(4)).task
    hold(task, HANGING, 99, 300)
    moment = ago(300)
    change(
        schedule, tick_index=5, planned=moment, nominal=moment, planned_for=schedule.plan_key, state_ready=False,
        state_next_attempt=ago(-10),
    )  # fmt: skip
    words = (
        r"tasks\.Schedule:? 1 schedule waits for the task of the tick before, which has not ended; the first tick is "
        rf"{FIVE} late: tidy for task {task.pk} \(running\)"
    )
    return Situation("tick waits", "schedule_late", words, _none(queue.tasks, pk=task.pk, state="pending"))


def _none(rows: Any, **lookups: Any) -> Callable[[], bool]:
    return lambda: not rows.filter(**lookups).exists()
