"""The columns of schedules, and their checks."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.db.models import Q

from stator.graph.backoff import MAX_SECONDS
from stator.models import MomentField, Now, StateField, StatorModel, names_of
from stator.rows.readings import read
from stator.texts import counted
from tasks.conf import DJANGO, load_settings
from tasks.datetimes import moment_problem
from tasks.exceptions import TaskError
from tasks.extensions.schedules.timetable import ALL, ONE, SKIP, Timetable
from tasks.messages import BIGINT, exclusive_value, message_of
from tasks.rows.queues import QueueRow

if TYPE_CHECKING:
    from tasks.models import Queue

# What happens to ticks that are due while the task of the previous tick has not ended.
DELAY, DROP, ALLOW = "delay", "skip", "allow"

# Ticks per second. With a much lower rate, waiting ticks would get turns beyond the last year that Python knows.
SLOWEST_RATE = 1e-6


# Characters of the error of a tick.
ERROR_LENGTH = 300


class ScheduleRow(StatorModel):
    """The table of :class:`tasks.models.Schedule`, and the properties of a row."""

    state: StateField

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
    # The three with types of their own are set wherever ticks read them.
    queue: "models.ForeignKey[Queue | None, Any]" = models.ForeignKey(
        "tasks.Queue", models.CASCADE, null=True, blank=True, related_name="+"
    )
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
    nominal: "models.DateTimeField[datetime | None, Any]" = models.DateTimeField(null=True, editable=False)
    planned = models.DateTimeField(null=True, editable=False)
    planned_for = models.CharField(max_length=300, editable=False)
    # Until when the schedule waits for its turn under its rate limit.
    held_until = models.DateTimeField(null=True, editable=False)
    # Whether an extra tick was requested.
    asked = models.BooleanField(default=False, editable=False)
    # When the latest tick fired, when it was due, and how many ticks never fired.
    fired = models.DateTimeField(null=True, editable=False)
    fired_for: "models.DateTimeField[datetime | None, Any]" = models.DateTimeField(null=True, editable=False)
    dropped = models.BigIntegerField(default=0, editable=False)
    # Of functions: how many ticks in a row have failed, the last one's error, and when the notice of them is sent.
    failed_ticks = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    last_error = models.CharField(max_length=ERROR_LENGTH, default="", db_default="", editable=False)
    notice_due = MomentField(null=True, editable=False)
    # The condition that a notice is due, and set for lists and problems: when the row was read.
    DEAD: ClassVar[Q] = Q(failed_ticks__gt=0)
    read_at: datetime
    created = MomentField(db_default=Now(), editable=False)

    # When a tick has read the row.
    now: datetime

    class Meta:
        abstract = True
        indexes = [
            models.Index(fields=["failed_ticks"], condition=Q(failed_ticks__gt=0), name="tasks_schedule_failed_ticks")
        ]
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
    def every(self) -> str:
        """Its period, or its cron expression and zone, as text."""
        return f"{self.cron} {self.zone}" if self.cron else f"every {self.period:g} s"

    @property
    def plan_key(self) -> str:
        """A text that changes whenever the timetable does."""
        return f"{self.period} {self.cron} {self.zone} {self.jitter}"

    @property
    def calls_function(self) -> bool:
        """Whether a tick calls a function instead of publishing a task."""
        return self.queue_id is None

    @property
    def failed_part(self) -> str:
        """The latest ticks in a row that failed, as a phrase."""
        return "last tick" if self.failed_ticks == 1 else f"last {self.failed_ticks:,} ticks"

    def letter(self) -> dict[str, object]:
        """Return what a dead letter says of its failed ticks."""
        report = read("report", str(self._state.db), type(self), self.pk, otherwise=None)
        names = names_of({report.worker} if report else set(), str(self._state.db))
        return {
            "queue": "", "action": self.name, "data": None, "attempts": self.failed_ticks,
            "workers": sorted(names.values()), "errors": [self.last_error], "is_logged": True, "schedule": str(self),
        }  # fmt: skip

    @property
    def result(self) -> str:
        """How its latest tick ended, for people."""
        if self.failed_ticks:
            return f"{self.failed_part} failed: {self.last_error}"
        if self.state_failures and not self.calls_function:
            return f"not published, after {counted(self.state_failures, 'error')}"
        if self.fired is None:
            return "none yet"
        if not self.calls_function:
            return "published"
        return "running" if self.state == "calling" else "succeeded"

    def key_of(self, index: int) -> str:
        """Return the unique name of a tick."""
        return f"{self.pk}:{index}"

    def task_key_of(self, index: int) -> str:
        """Return the key of a tick's task."""
        if not self.task_key:
            return self.key_of(index)
        return self.task_key.replace("{tick}", str(index)).replace("{entity}", self.entity)

    def metadata_of(self, pk: int, index: int, planned: str) -> dict[str, object]:
        """Return the metadata of a tick's task. ``pk``: the key of the schedule."""
        of_tick = {"schedule": pk, "tick": index, "planned": planned}
        return {**self.metadata, **of_tick, **({"entity": self.entity} if self.entity else {})}

    def problems(self) -> dict[str, str]:
        """Return one sentence for each field that cannot work."""
        wrong_fields = self.timetable.problems()
        for name in ("deadline", "rate_limit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                wrong_fields[name] = f"{name}={value!r} must be above 0"
        if wrong := moment_problem(self.until):
            wrong_fields["until"] = f"until {wrong}"
        if self.rate_limit is not None and 0 < self.rate_limit < SLOWEST_RATE:
            wrong_fields["rate_limit"] = f"rate_limit={self.rate_limit!r} must be at least {SLOWEST_RATE!r}"
        if (self.rate_limit is None) != (not self.rate_key):
            wrong_fields["rate_limit"] = "rate_limit and rate_key go together; set both or neither"
        if self.overlap not in self.Overlap.values:
            wrong_fields["overlap"] = f"overlap={self.overlap!r} must be one of {', '.join(self.Overlap.values)}"
        if self.task_key and "{tick}" not in self.task_key:
            wrong_fields["task_key"] = (
                f"task_key={self.task_key!r} must contain {{tick}}, or all ticks would be one task"
            )
        if self.missed not in self.Missed.values:
            wrong_fields["missed"] = f"missed={self.missed!r} must be one of {', '.join(self.Missed.values)}"
        if self.queue_id is not None and not self.action:
            wrong_fields["action"] = "a schedule with a queue needs an action for its tasks"
        if self.queue_id is None and self.action:
            wrong_fields["queue"] = f"action={self.action!r} needs a queue, into which its tasks are published"
        if self.action.startswith(DJANGO):
            wrong_fields["action"] = (
                "only Django's Tasks framework enqueues its tasks; use @tasks.periodic and enqueue there"
            )
        return wrong_fields if self.calls_function else {**self._refused(), **wrong_fields}

    def _refused(self) -> dict[str, str]:
        """Return one sentence for each field that would make a queue refuse the tasks."""
        metadata = self.metadata
        if isinstance(metadata, dict):
            # The check uses the longest values that a tick can add.
            metadata = self.metadata_of(BIGINT, BIGINT, "9999-12-31T23:59:59.999999+00:00")
        refused_names, settings = {}, load_settings()
        named = {name: getattr(self, name) for name in ("action", "data", "priority", "timeout", "max_attempts")}
        for name, value in {**named, "metadata": metadata, "task_key": self.task_key_of(BIGINT)}.items():
            try:
                message_of({"action": "any", "key" if name == "task_key" else name: value}, settings, MAX_SECONDS)
                if name == "metadata" and (key := self._exclusive_key()):
                    exclusive_value(key, metadata)
            except TaskError as refused:
                refused_names[name] = str(refused)
        return refused_names

    def _found_queue(self) -> QueueRow | None:
        try:
            return self.queue
        except ObjectDoesNotExist:
            # Django's validation refuses the missing queue itself.
            return None

    def _exclusive_key(self) -> str:
        queue = self._found_queue()
        return str(queue.exclusive_key) if queue else ""
