"""Runs: the claims of tasks."""

from django.db import models
from django.db.models import F, Q, QuerySet, Value
from django.db.models.deletion import Collector
from django.db.models.expressions import Combinable

from stator.models import MomentField, Now, SpreadField
from stator.scopes import ends_in_parts


def delete_runs(collector: Collector, field: models.Field, runs: QuerySet, using: str) -> None:
    """Delete the runs of deleted tasks (``on_delete``); runs in partitions are dropped with their partition."""
    if not ends_in_parts(Run, using):
        models.CASCADE(collector, field, runs, using)


# For Django: the runs need not be loaded before the call.
vars(delete_runs).update(lazy_sub_objs=True)


# A worker with a run of these outcomes has not rejected the task: it asked for a later attempt, or its claim ended
# because the task need not be done at all.
NO_REJECTIONS = ("waited", "canceled")


def forgotten() -> Combinable:
    """Return what ``version`` becomes if an attempt is not to count any more; ``version_at_claim`` reads it back."""
    return Value(-1) - F("version")


def version_at_claim(version: int | None) -> int:
    """Return the task's ``state_version`` at a claim, given the run's ``version``; 0 if it is not known any more."""
    return 0 if version is None else version if version >= 0 else -1 - version


class Run(models.Model):
    """One claim of a task by a named worker, or one ended attempt by a worker process."""

    class Outcome(models.TextChoices):
        """How the worker ended its claim; empty while the claim is open."""

        SUCCEEDED = "succeeded"
        FAILED = "failed"
        RELEASED = "released"
        CANCELED = "canceled"
        # A worker process did not end its claim before the lease ran out. A named worker's run stays open then.
        LOST = "lost"
        # The action asked for another attempt later.
        WAITED = "waited"

    # ``PartitionByTime`` divides the table by this column. It is the task's ``state_attempted``, the same for all
    # runs that are written of one claim, so the constraint with it allows no second one.
    PARTITION_COLUMN = "claimed"

    # No index of its own: the index ``tasks_run_of_worker`` begins with the task. No constraint either: a table that is
    # divided has no key of the id alone, and each claim would lock its task once more.
    task = models.ForeignKey("tasks.Task", delete_runs, related_name="runs", db_index=False, db_constraint=False)
    # The part of the table of tasks with the task, so that nodes have both.
    shard = SpreadField(default=0)
    # The task's ``state_version`` at the claim. It counts as an attempt until the task moves. Below 0 it never counts:
    # see ``forgotten``. Null, as version 1.1 wrote it, never counts either.
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
    # What the history of the task has of the end of this attempt: its number, its seconds, the state that it moved the
    # task to, if it did, the seconds in the state before, and its error. ``attempt`` is null if it has nothing of it:
    # the claim is open, the task was put off, or the table of the history has the entry, which is that of an action by
    # hand, or was written by version 1.1.
    attempt = models.IntegerField(null=True)
    duration = models.FloatField(null=True)
    to = models.CharField(max_length=100, null=True)  # noqa: DJ001 - not every statement names it
    stay = models.FloatField(null=True)
    error = models.TextField(null=True)  # noqa: DJ001 - as above
    fingerprint = models.CharField(max_length=16, null=True)  # noqa: DJ001 - as above

    class Meta:
        app_label = "tasks"
        # RENEW, RECORD: the run of a claim; and no second one. All tasks of one claim statement share a token.
        constraints = [models.UniqueConstraint(fields=["token", "task"], name="tasks_run_once")]
        indexes = [
            # CLAIM: whether this worker has had the task. And all that reads the runs of a task: its history, its
            # attempts, its dead letter, its deletion.
            models.Index(fields=["task", "worker"], name="tasks_run_of_worker"),
            # CLAIM: what one worker holds.
            models.Index(fields=["worker"], condition=Q(ended__isnull=True), name="tasks_run_open"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} by {self.worker}"

    @property
    def version_at_claim(self) -> int:
        """The task's ``state_version`` at the claim; 0 if it is not known any more."""
        return version_at_claim(self.version)

    @property
    def timed_out(self) -> bool:
        """Whether the lease ran out before the worker ended its claim."""
        return self.outcome == self.Outcome.LOST or (not self.outcome and self.task.state_claim != self.token)
