"""Schedules: rows whose attempts are ticks. ``timetable`` computes when ticks are due, ``ticking`` fires them."""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import models, router, transaction
from django.db.models import F, Q, QuerySet

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.graph.backoff import MAX_SECONDS, Backoff
from stator.models import MomentField, Now, StateField, StatorModel
from tasks.conf import DJANGO, TaskSettings, load_settings, read_settings
from tasks.datetimes import moment_problem
from tasks.exceptions import TaskError, UnknownAction
from tasks.messages import BIGINT, exclusive_value, message_of
from tasks.queue.actions import refuse_unknown
from tasks.queue.queues import Queue
from tasks.schedules.ticking import ALLOW, DELAY, DROP, PROGRESS, call, tick
from tasks.schedules.timetable import ALL, ONE, SKIP, Timetable
from tasks.sharding.task_ids import settle


def _tick_lease() -> float:
    settings, problems = read_settings()
    # The system checks report the problems, and must be able to import this module.
    return TaskSettings.TICK_LEASE if problems else settings.TICK_LEASE


# Seconds for which the schedules of a dead worker wait; any period must be longer.
LEASE = _tick_lease()

# Failed ticks are retried soon, because the next tick may be due within a minute.
BACKOFF = Backoff(base=1.0, cap=60.0)

# The columns that determine the next tick. If one changes, workers attempt the schedule at once.
PLANNED_BY = ("period", "cron", "zone", "jitter", "until", "enabled", "removed", "asked", "planned_for")

# Ticks per second. With a much lower rate, waiting ticks would get turns beyond the last year that Python knows.
SLOWEST_RATE = 1e-6

# Seconds. The next tick of a schedule may be years away, for example with "0 0 29 2 *".
FARTHEST = 50 * 366 * 86400.0

ROWS_AT_ONCE = 1000


class ScheduleGraph(StateGraph):
    """The graph of all schedules.

    An attempt in ``waiting`` is a tick: one transaction publishes the task and plans the next tick. If the schedule
    calls a function, it goes on to ``calling``, where the call is repeated until it succeeds or has failed three times.
    """

    waiting = State(
        try_interval=60, atomic=True, batch=100, lease=LEASE, backoff=BACKOFF, force_initial=True,
        expect_within=FARTHEST,
    )  # fmt: skip
    calling = State(try_interval=1, lease=LEASE, backoff=BACKOFF, max_failures=3)
    # Entered when ``enabled`` is off: moved by hand, an enabled schedule would return at once.
    paused = State(enter_by_hand=False)
    ended = State()

    waiting.transitions_to(calling, paused, ended)
    calling.transitions_to(waiting)
    calling.fails_to(waiting)
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


class ScheduleQuerySet(QuerySet["Schedule"]):
    """Schedules. If an update changes their timetables, workers plan them again."""

    def update(self, **values: Any) -> int:
        """Update rows as Django does, without validation; return how many. Changes take effect at once."""
        if not values.keys() & set(PLANNED_BY):
            return super().update(**values)
        self._for_write = True
        with transaction.atomic(using=self.db):
            pks = list(self.values_list("pk", flat=True))
            updated = super().update(**values)
            for start in range(0, len(pks), ROWS_AT_ONCE):
                look_again(self.db, pks[start : start + ROWS_AT_ONCE])
        return updated

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


class Schedule(StatorModel):
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

    class Missed(models.TextChoices):
        """Which of several due ticks fire."""

        SKIP = SKIP, "skip missed ticks, unless under a minute late"
        ONE = ONE, "the latest"
        ALL = ALL, "all, one after the other"

    class Overlap(models.TextChoices):
        """What happens to ticks that are due before the previous tick's task has ended."""

        DELAY = DELAY, "they wait for its end; then the rule for missed ticks applies"
        SKIP = DROP, "they are dropped"
        ALLOW = ALLOW, "they fire all the same"

    name = models.CharField(max_length=200)
    entity = models.CharField(max_length=200, blank=True)
    queue = models.ForeignKey("tasks.Queue", models.CASCADE, null=True, blank=True, related_name="+")
    action = models.CharField(max_length=200, blank=True)
    data = models.JSONField(null=True, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    priority = models.BigIntegerField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    task_key = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="The key of its tasks, with {tick} for the number of the tick and {entity}; empty: made by itself.",
    )
    period = models.FloatField(null=True, blank=True)
    cron = models.CharField(max_length=100, blank=True)
    zone = models.CharField(max_length=64, default="UTC")
    jitter = models.FloatField(default=0.0)
    missed = models.CharField(max_length=4, choices=Missed, default=Missed.ONE)
    deadline = models.FloatField(null=True, blank=True)
    overlap = models.CharField(max_length=5, choices=Overlap, default=Overlap.DELAY, db_default=Overlap.DELAY)
    rate_key = models.CharField(max_length=200, blank=True)
    rate_limit = models.FloatField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    # Whether the code no longer has the function, and the columns as the code last declared them.
    removed = models.BooleanField(default=False, editable=False)
    declared = models.JSONField(null=True, editable=False)
    # The workers' columns: the next tick's index, its place on the timetable, its time, and the timetable it was
    # planned for.
    tick_index = models.BigIntegerField(default=0, editable=False)
    nominal = models.DateTimeField(null=True, editable=False)
    planned = models.DateTimeField(null=True, editable=False)
    planned_for = models.CharField(max_length=300, editable=False)
    # Until when the schedule waits for its turn under its rate limit.
    held_until = models.DateTimeField(null=True, editable=False)
    # Whether an extra tick was requested.
    asked = models.BooleanField(default=False, editable=False)
    # When the latest tick fired, when it was due, and how many ticks never fired.
    fired = models.DateTimeField(null=True, editable=False)
    fired_for = models.DateTimeField(null=True, editable=False)
    dropped = models.BigIntegerField(default=0, editable=False)
    created = MomentField(db_default=Now(), editable=False)

    state = StateField(ScheduleGraph)

    objects: ClassVar[Any] = ScheduleQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "entity"], name="tasks_schedule_one_per_entity"),
            models.CheckConstraint(
                condition=Q(period__isnull=False, cron="") | Q(period__isnull=True) & ~Q(cron=""),
                name="tasks_schedule_period_or_cron",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.entity}".strip()

    @property
    def timetable(self) -> Timetable:
        """The timetable of its ticks."""
        return Timetable(self.period, self.cron, self.zone, self.jitter)

    @property
    def plan_key(self) -> str:
        """A text that changes whenever the timetable does."""
        return f"{self.period} {self.cron} {self.zone} {self.jitter}"

    @property
    def calls_function(self) -> bool:
        """Whether a tick calls a function instead of publishing a task."""
        return self.queue_id is None

    def key_of(self, index: int) -> str:
        """Return the unique name of a tick."""
        return f"{self.pk}:{index}"

    def task_key_of(self, index: int) -> str:
        """Return the key of a tick's task."""
        if not self.task_key:
            return self.key_of(index)
        return self.task_key.replace("{tick}", str(index)).replace("{entity}", self.entity)

    def metadata_of(self, pk: int, index: int, planned: str) -> dict[str, Any]:
        """Return the metadata of a tick's task. ``pk``: the key of the schedule."""
        of_tick = {"schedule": pk, "tick": index, "planned": planned}
        return {**self.metadata, **of_tick, **({"entity": self.entity} if self.entity else {})}

    def problems(self) -> dict[str, str]:
        """Return one sentence for each field that cannot work."""
        found = self.timetable.problems()
        for name in ("deadline", "rate_limit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                found[name] = f"{name}={value!r} must be above 0"
        if wrong := moment_problem(self.until):
            found["until"] = f"until {wrong}"
        if self.rate_limit is not None and 0 < self.rate_limit < SLOWEST_RATE:
            found["rate_limit"] = f"rate_limit={self.rate_limit!r} must be at least {SLOWEST_RATE!r}"
        if (self.rate_limit is None) != (not self.rate_key):
            found["rate_limit"] = "rate_limit and rate_key go together; set both or neither"
        if self.overlap not in self.Overlap.values:
            found["overlap"] = f"overlap={self.overlap!r} must be one of {', '.join(self.Overlap.values)}"
        if self.task_key and "{tick}" not in self.task_key:
            found["task_key"] = f"task_key={self.task_key!r} must contain {{tick}}, or all ticks would be one task"
        if self.missed not in self.Missed.values:
            found["missed"] = f"missed={self.missed!r} must be one of {', '.join(self.Missed.values)}"
        if self.queue_id is not None and not self.action:
            found["action"] = "a schedule with a queue needs an action for its tasks"
        if self.queue_id is None and self.action:
            found["queue"] = f"action={self.action!r} needs a queue, into which its tasks are published"
        if self.action.startswith(DJANGO):
            found["action"] = "only Django's Tasks framework enqueues its tasks; use @tasks.periodic and enqueue there"
        return found if self.calls_function else {**self._refused(), **found}

    def _refused(self) -> dict[str, str]:
        """Return one sentence for each field that would make a queue refuse the tasks."""
        metadata = self.metadata
        if isinstance(metadata, dict):
            # The check uses the longest values that a tick can add.
            metadata = self.metadata_of(BIGINT, BIGINT, "9999-12-31T23:59:59.999999+00:00")
        found, settings = {}, load_settings()
        named = {name: getattr(self, name) for name in ("action", "data", "priority", "timeout", "max_attempts")}
        for name, value in {**named, "metadata": metadata, "task_key": self.task_key_of(BIGINT)}.items():
            try:
                message_of({"action": "any", "key" if name == "task_key" else name: value}, settings, MAX_SECONDS)
                if name == "metadata" and (key := self._exclusive_key()):
                    exclusive_value(key, metadata)
            except TaskError as refused:
                found[name] = str(refused)
        return found

    def _found_queue(self) -> Queue | None:
        try:
            return self.queue
        except ObjectDoesNotExist:
            # Django's validation refuses the missing queue itself.
            return None

    def _exclusive_key(self) -> str:
        queue = self._found_queue()
        return str(queue.exclusive_key) if queue else ""

    def clean(self) -> None:
        """Raise ``ValidationError`` for fields that cannot work, too short a period, or an action the queue refuses."""
        problems = self.problems()
        if not problems and self.timetable.shortest() <= LEASE:
            problems["period"] = f"ticks must be more than a lease of {LEASE:g} s apart"
        if not problems and (problem := self._unknown_action()):
            problems["action"] = problem
        if problems:
            raise ValidationError(problems)

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
        if problems := self.problems():
            raise ValidationError(problems)
        if self._state.adding or kwargs.get("force_insert"):
            super().save(update_fields=update_fields, **kwargs)
            return
        if update_fields is None:
            # An instance that was read before a tick must not overwrite the tick's columns.
            update_fields = [
                field.name
                for field in self._meta.concrete_fields
                if not field.primary_key and field.name not in PROGRESS
            ]
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=using):
            super().save(update_fields=update_fields, **kwargs)
            look_again(using, [self.pk])

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[Any], **kwargs: Any
    ) -> "Schedule":
        schedule = super().from_db(db, field_names, values, **kwargs)
        settle(schedule, is_copy=False)
        return schedule

    def run_now(self) -> bool:
        """Fire one extra tick of the schedule now; return False if it is paused."""
        return bool(type(self).objects.filter(pk=self.pk).run_now())


def look_again(using: str, pks: list[int]) -> None:
    """Make workers attempt waiting schedules now, and move enabled schedules that are paused or ended to waiting."""
    rows = Schedule.stator.using(using).filter(pk__in=pks)
    rows.in_state(ScheduleGraph.waiting).retry()
    rows.in_state(ScheduleGraph.paused, ScheduleGraph.ended).filter(enabled=True, removed=False).move("waiting")
