"""Queues, the tasks in them, and what workers made of these."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from stator.models import Reason, StateField, StatorModel
from tasks import claiming, eligibility, explaining, moving
from tasks.attempts import attempts_of
from tasks.consumers import Consumer
from tasks.graph import TaskGraph
from tasks.indexes import MetadataIndex
from tasks.messages import milliseconds
from tasks.numbering import database_of
from tasks.querysets import TERMINAL, TaskQuerySet
from tasks.queues import Claimant, Queue
from tasks.rates import Rate
from tasks.schedules import Schedule
from tasks.throttles import ActionRate, ActionSlot

__all__ = ["ActionRate", "ActionSlot", "Claimant", "Consumer", "Queue", "Rate", "Run", "Schedule", "Shard", "Task"]


class Task(StatorModel):
    """One piece of work: the name of an action and its data.

    ``priority``: smaller is sooner; by default the Unix time in milliseconds at which it was published. ``key``: the
    publisher's own name for it, unique in the queue. ``metadata``: key-value pairs to claim and to search by.
    ``worker_ids``: only these may claim it; empty for anyone. ``worker_count``: so many workers run it, those with
    names each once; then the task is ``shared``, and its ``parts`` are what is claimed. ``lease``, ``timeout``,
    ``max_attempts`` and ``retention`` stand above those of the queue. ``timeout``: an attempt ends so many seconds
    after its claim, whatever its heartbeats.
    """

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="tasks")
    action = models.CharField(max_length=200)
    data = models.JSONField(null=True, blank=True)
    key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is unique for each task
    priority = models.BigIntegerField(default=milliseconds)
    metadata = models.JSONField(default=dict, blank=True)
    # The value of the queue's exclusive key; null where tasks do not exclude each other.
    exclusive_value = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    lease = models.FloatField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    retention = models.FloatField(null=True, blank=True)
    worker_ids = models.JSONField(default=list, blank=True)
    worker_count = models.PositiveIntegerField(default=1)
    # Whether only programs elsewhere may run it: published over HTTP as an action that the queue does not list.
    elsewhere_only = models.BooleanField(default=False, db_default=False, editable=False)
    whole = models.ForeignKey("self", models.CASCADE, null=True, editable=False, related_name="parts")
    result = models.JSONField(null=True, editable=False)
    created = models.DateTimeField(db_default=Now(), editable=False)
    # Once it is errored: when people are to be told of it next; null when they were.
    notice_due = models.DateTimeField(db_default=Now(), null=True, editable=False)

    state = StateField(TaskGraph)

    objects: ClassVar[Any] = TaskQuerySet.as_manager()

    class StatorMeta:
        """Every move and error is kept; worker processes claim what is theirs to run, most urgent first."""

        history = True
        priority = "priority"
        claimable = staticmethod(eligibility.open_to_process)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["queue", "key"], name="tasks_task_one_per_key"),
            models.UniqueConstraint(
                fields=["queue", "exclusive_value"],
                condition=Q(state_claim__isnull=False, exclusive_value__isnull=False),
                name="tasks_task_one_running_per_value",
            ),
            models.CheckConstraint(
                condition=Q(state_claim=None, state_locked_until=None)
                | Q(state_claim__isnull=False, state_locked_until__isnull=False, state_attempted__isnull=False),
                name="tasks_task_claimed_at_a_time",
            ),
        ]
        indexes = [
            # CLAIM from one queue, in order.
            models.Index(
                "queue",
                "priority",
                eligibility.names_nobody(),
                "id",
                condition=Q(state_ready=True),
                name="tasks_task_ready_in_queue",
            ),
            # CLAIM from an exclusive queue: whether another task of the value comes first.
            models.Index(
                fields=["queue", "exclusive_value", "priority", "id"],
                condition=Q(state_ready=True, exclusive_value__isnull=False),
                name="tasks_task_ready_of_value",
            ),
            # CLAIM by metadata: what waits may be few beside what is kept.
            MetadataIndex(
                fields=["metadata"],
                opclasses=["jsonb_path_ops"],
                condition=Q(state_ready=True),
                name="tasks_task_ready_metadata",
            ),
            # QUERY by metadata.
            MetadataIndex(fields=["metadata"], opclasses=["jsonb_path_ops"], name="tasks_task_metadata"),
            # BURY: what waits and has been attempted, for its attempts may be used up.
            models.Index(
                fields=["state_attempts"],
                condition=Q(state="pending", state_claim=None, state_attempts__gt=0),
                name="tasks_task_attempted",
            ),
            # SETTLE: parts that wait, for their shared task may have ended.
            models.Index(
                fields=["whole"], condition=Q(state="pending", whole__isnull=False), name="tasks_task_open_part"
            ),
            # NOTIFY: dead letters that nobody was told of.
            models.Index(
                fields=["notice_due"],
                condition=Q(state="errored", whole=None, notice_due__isnull=False),
                name="tasks_task_unnoticed",
            ),
            # PRUNE: what has ended, by queue, and by its own retention.
            models.Index(
                fields=["queue", "state_changed"],
                condition=Q(state__in=TERMINAL, whole=None, retention=None),
                name="tasks_task_ended",
            ),
            models.Index(
                fields=["state_changed"],
                condition=Q(state__in=TERMINAL, whole=None, retention__isnull=False),
                name="tasks_task_ended_own",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.pk}"

    @property
    def status(self) -> str:
        """invisible, pending, running, completed, canceled or errored; of a shared task as its parts have it."""
        if self.state == "shared":
            parts = {part.status for part in self.parts.all()}
            return next((status for status in ("running", "pending") if status in parts), "invisible")
        if self.state != "pending":
            return str(self.state)
        if self.state_claim is not None:
            return "running"
        due = self.state_next_attempt
        return "invisible" if not self.state_ready and due is not None and due > timezone.now() else "pending"

    @property
    def attempts(self) -> int:
        """Claims since it was published or requeued; once it has ended, those until then."""
        if self.state not in TERMINAL:
            return int(self.state_attempts)
        return attempts_of([self], self._state.db).get(self.pk, 0)

    @property
    def claimant(self) -> str | None:
        """The named worker that holds it."""
        run = self.runs.filter(token=self.state_claim).first() if self.state_claim else None
        return run.worker if run else None

    @property
    def claimed_at(self) -> datetime | None:
        """When whoever holds it has claimed it."""
        return self.state_attempted if self.state_claim else None

    @property
    def rejected_by(self) -> list[str]:
        """The named workers that gave it up, or lost it, in order."""
        runs = self.runs.exclude(outcome="succeeded").exclude(token=self.state_claim or UUID(int=0))
        return list(dict.fromkeys(runs.order_by("pk").values_list("worker", flat=True)))

    @property
    def results(self) -> list[Any]:
        """What its workers returned: of a shared task one for each part that is completed."""
        if self.worker_count == 1:
            return [self.result] if self.state == "completed" else []
        return [part.result for part in self.parts.filter(state="completed").order_by("pk")]

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> None:
        """Cancel it, and its parts; :class:`~tasks.exceptions.MoveRefused` unless it waits.

        ``running``: also where a worker holds it, which hears of it at its next heartbeat.
        """
        moving.cancel(self, actor=actor, reason=reason, running=running)

    def requeue(self, reason: str = "", *, actor: str = "") -> None:
        """Have it wait again, as if new; :class:`~tasks.exceptions.MoveRefused` unless it is errored."""
        moving.requeue(self, actor=actor, reason=reason)

    async def acancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> None:
        """As :meth:`cancel`, for async code."""
        await sync_to_async(self.cancel)(reason, actor=actor, running=running)

    async def arequeue(self, reason: str = "", *, actor: str = "") -> None:
        """As :meth:`requeue`, for async code."""
        await sync_to_async(self.requeue)(reason, actor=actor)

    @classmethod
    def find_claim(cls, pk: Any, token: UUID, *, using: str | None = None) -> claiming.TaskClaim:
        """The claim of a named worker that a token stands for; ``LeaseLost`` when it has ended or never was."""
        return claiming.find(cls, pk, token, using=using or database_of(pk))

    def explain(self) -> list[Reason]:
        """Why it is not moving: what lies with its queue first, then as of every managed object."""
        return explaining.explain(self, super().explain())

    def clean(self) -> None:
        """Refuse values that could not be published."""
        if self.worker_count < 1:
            raise ValidationError({"worker_count": "at least one worker has to run it"})


class Run(models.Model):
    """One claim of a task by a named worker, as it happened. Whether it timed out is derived: see ``timed_out``."""

    class Outcome(models.TextChoices):
        """How the worker ended its claim; empty while it has not."""

        SUCCEEDED = "succeeded"
        FAILED = "failed"
        RELEASED = "released"
        CANCELED = "canceled"

    task = models.ForeignKey(Task, models.CASCADE, related_name="runs")
    # The task's ``state_version`` when it was claimed: it counts until the task moves; null: it was forgotten.
    version = models.BigIntegerField(null=True)
    worker = models.CharField(max_length=100)
    token = models.UUIDField()
    claimed = models.DateTimeField(db_default=Now())
    lease_until = models.DateTimeField()
    # The lease that the worker asked for last, which its heartbeats keep; null: it asked for none of its own.
    lease = models.FloatField(null=True)
    ended = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome, blank=True)
    reason = models.TextField(blank=True)
    result = models.JSONField(null=True)

    class Meta:
        # One claim statement has one token for all of its tasks.
        constraints = [models.UniqueConstraint(fields=["token", "task"], name="tasks_run_once")]
        indexes = [
            # CLAIM: whether this worker has had the task.
            models.Index(fields=["task", "worker"], name="tasks_run_of_worker"),
            # CLAIM: what one worker holds.
            models.Index(fields=["worker"], condition=Q(ended__isnull=True), name="tasks_run_open"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} by {self.worker}"

    @property
    def timed_out(self) -> bool:
        """Whether the lease ran out before the worker ended its claim."""
        return not self.outcome and self.task.state_claim != self.token


class Shard(models.Model):
    """A database beside the one where queues are configured, over which some are spread, and its number."""

    number = models.PositiveSmallIntegerField(primary_key=True)
    alias = models.CharField(max_length=100, unique=True)

    def __str__(self) -> str:
        return self.alias
