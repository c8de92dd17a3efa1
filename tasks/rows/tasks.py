"""The columns and indexes of tasks."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, Q, Value, When
from django.utils import timezone

from stator.models import LazyJSONField, MomentField, Now, SpreadField, StateField, StatorModel
from tasks.indexes import MetadataIndex
from tasks.messages import milliseconds

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from tasks.models import Run, Task

# The states of tasks that have ended.
TERMINAL = ("completed", "canceled", "errored")

# The tasks that are no part of another one: all, unless there are shared tasks.
NO_PART = Q()
NO_PART &= Q(whole=None)  # tasks.extensions.shared
# The parts of shared tasks: most tasks are none.
IS_PART = Q(whole__isnull=False)  # tasks.extensions.shared
OPEN_PART = Q(state="pending") & IS_PART  # tasks.extensions.shared

# What a task that has ended gets when it waits again.
WAITS_AGAIN = {
    "result": None,
    "notice_due": Now(),  # tasks.extensions.notices
}

# Dead letters whose notice was not sent.
DEAD = Q(state="errored", notice_due__isnull=False) & NO_PART  # tasks.extensions.notices
UNNOTICED = "tasks_task_unnoticed"  # tasks.extensions.notices


def names_nobody() -> Case:
    """Return the sort key that puts tasks with ``worker_ids`` before tasks for anyone."""
    return Case(When(worker_ids=[], then=Value(1)), default=Value(0))


# The tasks of a batch: most tasks have none.
HAS_BATCH = Q(batch__isnull=False)  # tasks.extensions.batches
IN_BATCH = "tasks_task_in_batch"  # tasks.extensions.batches

LIVE = ("running", "pending", "invisible")  # tasks.extensions.shared

# Annotates rows with the time when they are read.
READ_AT = {"read_at": Now()}


def _rare_key(to: str, on_delete: Any, related_name: str) -> "models.ForeignKey[Any, Any]":
    """Return a key that most tasks have not, so that an index of all would be too large.

    It has no constraint, which would lock the other row at each INSERT.
    """
    return models.ForeignKey(
        to, on_delete, null=True, editable=False, related_name=related_name, db_index=False, db_constraint=False
    )


class TaskRow(StatorModel):
    """The table of :class:`tasks.models.Task`, and the properties of a row."""

    state: StateField
    # No index of its own: the unique index of the keys begins with the queue.
    queue = models.ForeignKey("tasks.Queue", models.CASCADE, related_name="tasks", db_index=False)
    action = models.CharField(max_length=200)
    data = LazyJSONField(null=True, blank=True)
    key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is unique for each task
    priority = models.BigIntegerField(default=milliseconds)
    metadata = LazyJSONField(default=dict, blank=True)
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
    worker_ids = LazyJSONField(default=list, blank=True)
    worker_count = models.PositiveIntegerField(default=1)  # tasks.extensions.shared
    # The part of the table, 0 in queues that are not spread: see ``tasks.queue.parts``.
    shard = SpreadField(default=0, in_one_line=True)
    # Whether only external programs may run it: it was published over HTTP with an action that the queue does not list.
    elsewhere_only = models.BooleanField(default=False, db_default=False, editable=False)
    whole = _rare_key("self", models.CASCADE, "parts")  # tasks.extensions.shared
    batch = _rare_key("tasks.Batch", models.SET_NULL, "tasks")  # tasks.extensions.batches
    result = LazyJSONField(null=True, editable=False)
    created = MomentField(db_default=Now(), editable=False)
    # The claim of the attempt that a worker process has marked as begun last: see ``tasks.queue.begun``.
    begun = models.UUIDField(null=True, editable=False)
    # When the notice of an errored task is sent at the earliest; null after it was sent.
    notice_due = MomentField(db_default=Now(), null=True, editable=False)  # tasks.extensions.notices

    # The related managers, which Django adds with the models of tasks and runs.
    parts: "RelatedManager[Task]"  # tasks.extensions.shared
    runs: "RelatedManager[Run]"
    whole_id: int | None  # tasks.extensions.shared
    batch_id: int | None  # tasks.extensions.batches
    # Set for command lines and answers of the API: when the row was read, and what was looked up for many tasks.
    read_at: datetime
    counted: int
    holder: str | None
    # Set for a task that is published: which of its options the publisher gave.
    given: list[str]
    options: frozenset[str]
    delay: float | None

    class StatorMeta:
        """History is on. Worker processes claim the most urgent of the tasks that they may run."""

        history = True  # stator.extensions.reports
        priority = "priority"
        spread = "shard"
        then = names_nobody()
        heartbeat = "heartbeat_interval"
        lease_end = "tasks.queue.eligibility.lease_end_in_process"
        max_runtime = "tasks.queue.eligibility.timeout_in_process"
        reasons = "tasks.extensions.problems.unserved.reasons"
        fixed = ("batch",)  # stator.extensions.related tasks.extensions.batches
        beside = ("tasks.Run",)  # stator.extensions.slices
        everywhere = ("tasks.Queue",)  # stator.extensions.slices

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["queue", "key", "shard"], name="tasks_task_one_per_key"),
            models.UniqueConstraint(
                fields=["queue", "exclusive_value", "shard"],
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
                names_nobody(),
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
            # CLAIM by metadata: few of many rows may wait. Most tasks have none, and an entry in such an index is the
            # dearest of all that an INSERT or UPDATE writes.
            MetadataIndex(
                fields=["metadata"],
                opclasses=["jsonb_path_ops"],
                condition=Q(state_ready=True) & ~Q(metadata={}),
                name="tasks_task_ready_searched",
            ),
            # QUERY by metadata.
            MetadataIndex(
                fields=["metadata"],
                opclasses=["jsonb_path_ops"],
                condition=~Q(metadata={}),
                name="tasks_task_searched",
            ),
            # ``end_exhausted()``: waiting tasks that were attempted, whose attempts may be used up.
            models.Index(
                fields=["state_attempts"],
                condition=Q(state="pending", state_claim=None, state_attempts__gt=0),
                name="tasks_task_attempted",
            ),
            # The parts of a shared task; those that wait, whose shared task may have ended.
            models.Index(name="tasks_task_part", fields=["whole"], condition=IS_PART),  # tasks.extensions.shared
            models.Index(name="tasks_task_open_part", fields=["whole"], condition=OPEN_PART),  # tasks.extensions.shared
            models.Index(name=IN_BATCH, fields=["batch", "state"], condition=HAS_BATCH),  # tasks.extensions.batches
            models.Index(name=UNNOTICED, fields=["notice_due"], condition=DEAD),  # tasks.extensions.notices
            # PRUNE: ended tasks, by the queue's retention and by their own.
            models.Index(
                fields=["queue", "state_changed"],
                condition=Q(state__in=TERMINAL, retention=None) & NO_PART,
                name="tasks_task_ended",
            ),
            models.Index(
                fields=["state_changed"],
                condition=Q(state__in=TERMINAL, retention__isnull=False) & NO_PART,
                name="tasks_task_ended_own",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.pk}"

    @property
    def status(self) -> str:
        """Invisible, pending, running, completed, canceled or errored; a shared task's follows from its parts."""
        if self.state == "shared":  # tasks.extensions.shared
            of_parts = {part.status for part in self.parts.all()}  # tasks.extensions.shared
            return next(each for each in LIVE if each in (*of_parts, "invisible"))  # tasks.extensions.shared
        if self.state != "pending":
            return str(self.state)
        if self.state_claim is not None:
            return "running"
        due = self.state_next_attempt
        return "invisible" if not self.state_ready and due is not None and due > timezone.now() else "pending"
