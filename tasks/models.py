"""The models of tasks, of their runs and of shards; this module also exports the other models of the app."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from stator.models import MomentField, Now, Reason, StateField, StatorModel, name_of, worker_of
from tasks.actions.throttles import ActionRate, ActionSlot
from tasks.graph import TaskGraph
from tasks.indexes import MetadataIndex
from tasks.messages import milliseconds
from tasks.querysets import TaskQuerySet
from tasks.queue import eligibility, explaining, held_claims, operator_actions, publishing, runs
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.claimants import Claimant
from tasks.queue.claiming import TaskClaim
from tasks.queue.consumers import Consumer
from tasks.queue.queues import Queue
from tasks.queue.rules import TERMINAL
from tasks.schedules.rates import Rate
from tasks.schedules.schedules import Schedule
from tasks.sharding.task_ids import BITS, database_of, settle

__all__ = ["ActionRate", "ActionSlot", "Claimant", "Consumer", "Queue", "Rate", "Run", "Schedule", "Shard", "Task"]


class Task(StatorModel):
    """One piece of work: the name of an action and its data.

    ``priority``: smaller is sooner; by default the Unix time in milliseconds at publication. ``key``: the publisher's
    own name for the task, unique in the queue. ``metadata``: names and values by which tasks are claimed and searched.
    ``worker_ids``: the only workers that may claim it; empty: any worker. ``worker_count``: how many workers run it,
    each named worker once. If there are several, the task is ``shared`` and workers claim its ``parts``. ``lease``,
    ``timeout``, ``max_attempts`` and ``retention`` override those of the queue. ``timeout``: seconds after which an
    attempt is ended, heartbeats or not; from the claim of a named worker, or from the call in a worker process.
    """

    # Without an index of its own: that of the keys begins with the queue.
    queue = models.ForeignKey(Queue, models.CASCADE, related_name="tasks", db_index=False)
    action = models.CharField(max_length=200)
    data = models.JSONField(null=True, blank=True)
    key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is unique for each task
    priority = models.BigIntegerField(default=milliseconds)
    metadata = models.JSONField(default=dict, blank=True)
    # The value of the queue's exclusive key; null in queues that are not exclusive.
    exclusive_value = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    lease = models.FloatField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    retention = models.FloatField(null=True, blank=True)
    # Seconds between the heartbeats of a named worker (null: a third of the lease), and how many unexpected errors one
    # worker retries (null: the number that its loop, or the action, sets).
    heartbeat_interval = models.FloatField(null=True, blank=True)
    max_unexpected_retries = models.PositiveIntegerField(null=True, blank=True)
    worker_ids = models.JSONField(default=list, blank=True)
    worker_count = models.PositiveIntegerField(default=1)
    # Whether only external programs may run it: it was published over HTTP with an action that the queue does not list.
    elsewhere_only = models.BooleanField(default=False, db_default=False, editable=False)
    # Most tasks are no parts, so the index of the parts leaves them out.
    whole = models.ForeignKey("self", models.CASCADE, null=True, editable=False, related_name="parts", db_index=False)
    result = models.JSONField(null=True, editable=False)
    created = MomentField(db_default=Now(), editable=False)
    # When the notice of an errored task is sent at the earliest; null after it was sent.
    notice_due = MomentField(db_default=Now(), null=True, editable=False)

    state = StateField(TaskGraph)

    objects: ClassVar[Any] = TaskQuerySet.as_manager()

    class StatorMeta:
        """History is on. Worker processes claim the most urgent of the tasks that they may run."""

        history = True
        priority = "priority"
        then = eligibility.names_nobody()
        heartbeat = "heartbeat_interval"

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
            # CLAIM from an exclusive queue: whether another task with the same value comes first.
            models.Index(
                fields=["queue", "exclusive_value", "priority", "id"],
                condition=Q(state_ready=True, exclusive_value__isnull=False),
                name="tasks_task_ready_of_value",
            ),
            # CLAIM by metadata: few of many rows may wait.
            MetadataIndex(
                fields=["metadata"],
                opclasses=["jsonb_path_ops"],
                condition=Q(state_ready=True),
                name="tasks_task_ready_metadata",
            ),
            # QUERY by metadata.
            MetadataIndex(fields=["metadata"], opclasses=["jsonb_path_ops"], name="tasks_task_metadata"),
            # ``end_exhausted()``: waiting tasks that were attempted, whose attempts may be used up.
            models.Index(
                fields=["state_attempts"],
                condition=Q(state="pending", state_claim=None, state_attempts__gt=0),
                name="tasks_task_attempted",
            ),
            # The parts of a shared task.
            models.Index(fields=["whole"], condition=Q(whole__isnull=False), name="tasks_task_part"),
            # Waiting parts, whose shared task may have ended.
            models.Index(
                fields=["whole"], condition=Q(state="pending", whole__isnull=False), name="tasks_task_open_part"
            ),
            # Dead letters whose notice was not sent.
            models.Index(
                fields=["notice_due"],
                condition=Q(state="errored", whole=None, notice_due__isnull=False),
                name="tasks_task_unnoticed",
            ),
            # PRUNE: ended tasks, by the queue's retention and by their own.
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

    @classmethod
    def from_db(cls, db: Any, field_names: Any, values: Any, **kwargs: Any) -> "Task":
        task = super().from_db(db, field_names, values, **kwargs)
        settle(task, is_copy=task.pk >> BITS > 0)
        return task

    # Workers read the tasks that they claim where these are written, without calling this method.
    from_db.__func__.only_notes = True  # type: ignore[attr-defined]

    @property
    def status(self) -> str:
        """Invisible, pending, running, completed, canceled or errored; of a shared task, by its parts."""
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
        """The number of claims since the task was published or requeued; it stays after the task has ended.

        A shared task has the attempts of its parts.
        """
        return attempts_of([self], self._state.db)[self.pk]

    @property
    def claimant(self) -> str | None:
        """The name of the worker that holds the task."""
        if not self.state_claim:
            return None
        run = self.runs.filter(token=self.state_claim).first()
        return run.worker if run else name_of(worker_of(self.state_claim), self._state.db)

    @property
    def claimed_at(self) -> datetime | None:
        """When the current holder claimed the task."""
        return self.state_attempted if self.state_claim else None

    @property
    def rejected_by(self) -> list[str]:
        """The names of the workers that gave up or lost the task, or parts of a shared one, in order."""
        ended = runs.of_task(self).exclude(outcome__in=["succeeded", "waited"]).exclude(token=F("task__state_claim"))
        return list(dict.fromkeys(ended.order_by("pk").values_list("worker", flat=True)))

    @property
    def results(self) -> list[Any]:
        """The results: at most one, or for a shared task one for each completed part."""
        if self.worker_count == 1:
            return [self.result] if self.state == "completed" else []
        return [part.result for part in self.parts.filter(state="completed").order_by("pk")]

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> None:
        """Cancel the task and its parts; raise :class:`~tasks.exceptions.MoveRefused` unless it waits.

        ``running``: also cancel a task that a worker holds; the worker learns this at its next heartbeat.
        """
        operator_actions.cancel(self, actor=actor, reason=reason, running=running)

    def requeue(self, reason: str = "", *, actor: str = "") -> None:
        """Make an errored task wait again, with all its attempts; raise ``MoveRefused`` for any other task."""
        operator_actions.requeue(self, actor=actor, reason=reason)

    def change(self, **options: Any) -> None:
        """Change options of a task that has not ended, even while a worker holds it; those not given stay.

        ``worker_ids``, ``timeout``, ``heartbeat_interval``, ``lease``, ``max_attempts``, ``max_unexpected_retries``,
        ``priority`` and ``retention``; None stands for the value of the queue or the setting. The guide says when each
        takes effect. Raise ``MoveRefused`` if the task has ended, and ``TaskError`` for a value that cannot be.
        """
        publishing.change(self, options)

    async def achange(self, **options: Any) -> None:
        """Run :meth:`change` from async code."""
        await sync_to_async(self.change)(**options)

    async def acancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> None:
        """Run :meth:`cancel` from async code."""
        await sync_to_async(self.cancel)(reason, actor=actor, running=running)

    async def arequeue(self, reason: str = "", *, actor: str = "") -> None:
        """Run :meth:`requeue` from async code."""
        await sync_to_async(self.requeue)(reason, actor=actor)

    @classmethod
    def find_claim(cls, pk: int, token: UUID, *, using: str | None = None) -> TaskClaim:
        """Return the claim of a named worker with this token; raise ``LeaseLost`` if it has ended or never existed."""
        return held_claims.find(cls, pk, token, using=using or database_of(pk))

    def explain(self) -> list[Reason]:
        """Return why the task is not moving: the queue's reasons, then those that any managed object can have."""
        return explaining.explain(self, super().explain())

    def clean(self) -> None:
        """Raise ``ValidationError`` for values that cannot be published."""
        if self.worker_count < 1:
            raise ValidationError({"worker_count": f"must be at least 1, got {self.worker_count}"})


class Run(models.Model):
    """One claim of a task by a named worker, or one ended attempt by a worker process."""

    class Outcome(models.TextChoices):
        """How the worker ended its claim; empty while the claim is open."""

        SUCCEEDED = "succeeded"
        FAILED = "failed"
        RELEASED = "released"
        CANCELED = "canceled"
        # The action asked for another attempt later.
        WAITED = "waited"

    # Without an index of its own: that of the workers begins with the task.
    task = models.ForeignKey(Task, models.CASCADE, related_name="runs", db_index=False)
    # The task's ``state_version`` at the claim. It counts as an attempt until the task moves; null: it never counts.
    version = models.BigIntegerField(null=True)
    worker = models.CharField(max_length=100)
    token = models.UUIDField()
    claimed = MomentField(db_default=Now())
    lease_until = models.DateTimeField()
    # The lease in seconds that the worker asked for last, and that its heartbeats renew; null if it never asked.
    lease = models.FloatField(null=True)
    # The errors in this claim after which the worker tried again, or gave up; a process writes them at its end.
    unexpected_errors = models.PositiveIntegerField(default=0, db_default=0)
    ended = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome, blank=True)
    reason = models.TextField(blank=True)
    result = models.JSONField(null=True)

    class Meta:
        # All tasks of one claim statement share a token.
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
    """A further database over which queues are spread, and its number."""

    number = models.PositiveSmallIntegerField(primary_key=True)
    alias = models.CharField(max_length=100, unique=True)

    def __str__(self) -> str:
        return self.alias
