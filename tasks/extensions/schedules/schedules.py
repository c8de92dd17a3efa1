"""Schedules: rows whose attempts are ticks. ``timetable`` computes when ticks are due, ``ticking`` fires them."""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, cast

from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.db.models import F, Q, QuerySet

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.graph.backoff import Backoff
from stator.models import StateField
from stator.texts import listed
from tasks.conf import TaskSettings, read_settings
from tasks.exceptions import UnknownAction
from tasks.extensions.schedules.problems import verbs
from tasks.extensions.schedules.rates import end_turns
from tasks.extensions.schedules.rows import ScheduleRow
from tasks.extensions.schedules.ticking import FAILURES, PROGRESS, call, count_failure, tick
from tasks.extensions.schedules.timetable import Timetable
from tasks.queue.actions import refuse_unknown
from tasks.queue.serving import is_anywhere, processes_in
from tasks.rows.databases import settle


def _tick_lease() -> float:
    settings, problems = read_settings()
    # The system checks report the problems, and must be able to import this module.
    return TaskSettings.TICK_LEASE if problems else settings.TICK_LEASE


# Seconds that the schedules of a dead worker wait; any period must be longer.
LEASE = _tick_lease()

# Failed ticks are retried soon, because the next tick may be due within a minute.
BACKOFF = Backoff(base=1.0, cap=60.0)

# The columns that determine the next tick. If one changes, workers attempt the schedule at once.
PLANNED_BY = ("period", "cron", "zone", "jitter", "until", "enabled", "removed", "asked", "planned_for")

# The columns that determine when it is the turn of a tick that waits for the rate.
RATED = ("rate_limit", "rate_key")

# The columns that determine how far its ticks are apart, without jitter.
TIMETABLE = ("period", "cron", "zone")

# Seconds. The next tick of a schedule may be years away, for example with "0 0 29 2 *".
FARTHEST = 50 * 366 * 86400.0

ROWS_AT_ONCE = 1000


class ScheduleGraph(StateGraph):
    """The graph of all schedules.

    An attempt in ``waiting`` is a tick: one transaction publishes the task and plans the next tick. If the schedule
    calls a function, it goes on to ``calling``, where the call is repeated until it succeeds or has failed three times;
    then ``failed`` counts the tick.
    """

    waiting = State(
        try_interval=60, atomic=True, batch=100, lease=LEASE, backoff=BACKOFF, force_initial=True,
        expect_within=FARTHEST,
    )  # fmt: skip
    calling = State(try_interval=1, lease=LEASE, backoff=BACKOFF, max_failures=3)
    failed = State(try_interval=1, lease=LEASE, enter_by_hand=False)
    # Entered when ``enabled`` is off: moved by hand, an enabled schedule would return at once.
    paused = State(enter_by_hand=False)
    ended = State()

    waiting.transitions_to(calling, paused, ended)
    calling.transitions_to(waiting)
    calling.fails_to(failed)
    failed.transitions_to(waiting)
    calling.when(Q(removed=True)).to(waiting)
    paused.when(Q(enabled=True, removed=False)).to(waiting)

    @classmethod
    def handle_waiting(cls, schedules: list["Schedule"]) -> dict["Schedule", str | TryAgainLater]:
        """Fire the ticks that are due."""
        return tick(schedules)

    @classmethod
    def handle_calling(cls, schedule: "Schedule") -> State:
        """Call the function."""
        call(schedule)
        return cls.waiting

    @classmethod
    def handle_failed(cls, schedule: "Schedule") -> State:
        """Count the tick whose call has failed for good."""
        count_failure(schedule)
        return cls.waiting


class ScheduleQuerySet(QuerySet["Schedule"]):
    """Schedules. If an update changes their timetables, workers plan them again."""

    def update(self, **values: object) -> int:
        """Update rows as Django does; return how many. Changes take effect at once.

        Of what :meth:`Schedule.clean` refuses, it refuses only ticks that are too close to each other.
        """
        if not values.keys() & {*PLANNED_BY, *RATED}:
            return super().update(**values)
        self._for_write = True
        with transaction.atomic(using=self.db):
            pks = list(self.values_list("pk", flat=True))
            if values.keys() & set(RATED):
                end_turns(self.db, {*self.order_by().values_list("rate_key", flat=True).distinct(), *_key_in(values)})
                values["held_until"] = None
            updated = super().update(**values)
            for start in range(0, len(pks), ROWS_AT_ONCE):
                some = pks[start : start + ROWS_AT_ONCE]
                if values.keys() & set(TIMETABLE):
                    _refuse_hasty(self.db, some)
                look_again(self.db, some)
        return updated

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Create schedules as Django does; raise ``ValidationError`` for what :meth:`Schedule.save` refuses."""
        schedules = list(objs)
        for schedule in schedules:
            schedule.refuse()
        return super().bulk_create(schedules, *args, **kwargs)

    update.alters_data = True  # type: ignore[attr-defined]

    def run_now(self) -> int:
        """Fire one extra tick of each schedule now, except of paused ones; return how many."""
        return self.filter(enabled=True, removed=False).update(asked=True)

    def begin_anew(self, beyond: int = 0) -> int:
        """Plan the schedules anew from now; the indexes of their ticks skip ``beyond`` numbers.

        Call it after a backup of the database was restored: see the guide.
        """
        index = F("tick_index") + beyond
        return self.update(tick_index=index, planned_for="", nominal=None, planned=None, held_until=None)


class Schedule(ScheduleRow):
    """A schedule of ticks for one entity; each publishes a task or calls a function. Durations are in seconds.

    Ticks are due every ``period``, or by ``cron`` in the time of ``zone``.

    ``jitter``: ticks are randomly up to this much sooner or later.
    ``missed``: which ticks still fire if they were due while no worker ran.
    ``deadline``: a tick that is later than this does not fire.
    ``overlap``: what happens to a tick that is due before the previous tick's task has ended.
    ``rate_limit``: the most ticks per second over all schedules with the same ``rate_key``.
    ``until``: no tick is due after this time.
    ``priority``, ``timeout``, ``max_attempts`` and ``task_key`` are passed to its tasks; empty: as if published without
    them.

    The index of a tick is never used again. Changes take effect at once. ``save()`` never overwrites the workers'
    columns.
    """

    state = StateField(ScheduleGraph)

    objects: ClassVar[ScheduleQuerySet] = cast(ScheduleQuerySet, ScheduleQuerySet.as_manager())

    def clean(self) -> None:
        """Raise ``ValidationError`` for fields that cannot work, too short a period, or an action the queue refuses."""
        self.refuse(too_long=False)

    def refuse(self, *, unknown_action: bool = True, too_long: bool = True) -> None:
        """Raise ``ValidationError`` as :meth:`clean`; ``unknown_action``: also if the queue refuses the action.

        ``too_long``: also for a text that its column cannot have, which ``full_clean()`` refuses by itself.
        """
        problems = {**(self._too_long() if too_long else {}), **self.problems()}
        if not problems and (problem := haste_of(self.timetable)) and not self._has_timetable():
            problems["cron" if self.cron else "period"] = problem
        if not problems and unknown_action and (problem := self._unknown_action()):
            problems["action"] = problem
        if problems:
            raise ValidationError(problems)

    def _has_timetable(self) -> bool:
        """Return whether the database has the schedule with this timetable already: the lease may be longer now."""
        if self._state.adding:
            return False
        stored = type(self).objects.using(self._state.db).filter(pk=self.pk)
        return stored.filter(**{name: getattr(self, name) for name in TIMETABLE}).exists()

    def _too_long(self) -> dict[str, str]:
        lengths = {field.name: field.max_length for field in self._meta.concrete_fields if field.editable}
        return {
            name: f"{name} has {length:,} characters; at most {most:,} are stored"
            for name, most in lengths.items()
            if most is not None and (length := len(str(getattr(self, name)))) > most
        }

    def _unknown_action(self) -> str:
        queue = self._found_queue()
        if queue is None or queue.actions_elsewhere:
            return ""
        try:
            refuse_unknown(queue, [self.action])
        except UnknownAction as refused:
            return str(refused)
        return ""

    def save(self, *, update_fields: Iterable[str] | None = None, **kwargs: Any) -> None:
        # A process with older code may change a schedule whose action it does not have.
        self.refuse(unknown_action=self._state.adding)
        if self._state.adding or kwargs.get("force_insert"):
            super().save(update_fields=update_fields, **kwargs)
            return
        if update_fields is None:
            # An instance that was read before a tick must not overwrite the tick's columns.
            update_fields = [
                field.name
                for field in self._meta.concrete_fields
                if not field.primary_key and field.name not in (*PROGRESS, *FAILURES)
            ]
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=using):
            stored = type(self).objects.using(using).filter(pk=self.pk)
            rated = {name: getattr(self, name) for name in RATED if name in update_fields}
            if rated and stored.exclude(**rated).exists():
                # Ticks that wait get their turns anew.
                stored.update(**rated)
            super().save(update_fields=update_fields, **kwargs)
            look_again(using, [self.pk])

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[object], **kwargs: object
    ) -> "Schedule":
        schedule = super().from_db(db, field_names, values, **kwargs)
        settle(schedule)
        return schedule

    def run_now(self) -> bool:
        """Fire one extra tick of the schedule now; return False if it is paused."""
        return bool(type(self).objects.filter(pk=self.pk).run_now())

    explain = verbs.explain  # tasks.extensions.schedules.problems


def _key_in(values: dict[str, Any]) -> list[str]:
    return [values["rate_key"]] if values.get("rate_key") else []


def haste_of(timetable: Timetable) -> str:
    """Return why ticks of a valid timetable come too fast; "" if they do not.

    If a tick ends its worker, it has to be repeated, after its lease, before the next one is due.
    """
    if (apart := timetable.shortest()) > LEASE:
        return ""
    return f"its ticks are {apart:g} s apart; they must be more than a lease of {LEASE:g} s (TICK_LEASE) apart"


def _refuse_hasty(using: str, pks: list[object]) -> None:
    """Raise ``ValidationError`` if ticks of one of these stored schedules come too fast."""
    rows: QuerySet[Schedule] = QuerySet(Schedule, using=using).filter(pk__in=pks).order_by()
    for period, cron, zone in rows.values_list(*TIMETABLE).distinct():
        timetable = Timetable(period, cron, zone, 0.0)
        if not timetable.problems() and (problem := haste_of(timetable)):
            raise ValidationError({"cron" if cron else "period": problem})


def without_action(schedules: Iterable[Schedule], using: str) -> list[Schedule]:
    """Return the schedules whose action nobody has, so that no tick of them fires; one statement, and their queues."""
    with_queue = [(each, each.queue) for each in schedules if each.queue is not None]
    processes = processes_in(using) if with_queue else ()
    return [each for each, queue in with_queue if not is_anywhere(each.action, queue, processes)]


def why_not(rows: ScheduleQuerySet, count: int) -> str:
    """Return a sentence about the first schedules that were run now and will not fire; ``count``: how many will."""
    if not count:
        return "Paused schedules do not fire: resume them first."
    asked = rows.filter(enabled=True, removed=False).select_related("queue")[:ROWS_AT_ONCE]
    if not (idle := without_action(asked, rows.db)):
        return ""
    return f"Nobody has the action of {listed(idle)}: edit it, or deploy code that has the action."


def look_again(using: str, pks: list[int]) -> None:
    """Make workers attempt waiting schedules now, and move enabled schedules that are paused or ended to waiting."""
    rows = Schedule.stator.using(using).filter(pk__in=pks)
    rows.in_state(ScheduleGraph.waiting).retry()
    rows.in_state(ScheduleGraph.paused, ScheduleGraph.ended).filter(enabled=True, removed=False).move("waiting")
