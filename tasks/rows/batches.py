"""The columns of batches, and the counts of their tasks."""

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Model, Q, QuerySet

from stator.models import MomentField, Now, Portion, StateField, StatorModel
from tasks.messages import NAME_LENGTH
from tasks.rows.tables import task_rows
from tasks.rows.tasks import TERMINAL

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from tasks.models import Queue, Task

# Tasks of one status are counted up to this number, by the index over batch and state.
MAX_COUNTED = 1_000_000

# A batch takes tasks in these states; in the second it ends with its last task.
OPEN = ("filling", "running")
# The states before its end.
UNENDED = (*OPEN, "ending")


class BatchRow(StatorModel):
    """The table of :class:`tasks.models.Batch`, and the properties of a row."""

    state: StateField
    # No index of its own: the unique index of the keys begins with the queue.
    queue: "models.ForeignKey[Queue, Queue]" = models.ForeignKey(
        "tasks.Queue", models.CASCADE, related_name="batches", editable=False, db_index=False
    )
    key = models.CharField(max_length=NAME_LENGTH, null=True, blank=True)  # noqa: DJ001 - null is unique for each batch
    on_done = models.JSONField(null=True, blank=True)
    on_failed = models.JSONField(null=True, blank=True)
    on_first_failure = models.JSONField(null=True, blank=True)
    # When ``on_first_failure`` was published.
    first_failure = MomentField(null=True, editable=False)
    # Whether a program made it over HTTP: its actions are published as if over HTTP, too.
    over_http = models.BooleanField(default=False, db_default=False, editable=False)
    # The counts when it last ended, since ended tasks are deleted after their retention.
    counted = models.JSONField(null=True, editable=False)
    created = MomentField(db_default=Now(), editable=False)

    # The related manager, which Django adds with the model of tasks.
    tasks: "RelatedManager[Task]"
    queue_id: int | None

    class StatorMeta:
        """History is on."""

        history = True  # stator.extensions.reports

    class Meta:
        abstract = True
        verbose_name_plural = "batches"
        constraints = [models.UniqueConstraint(fields=["queue", "key"], name="tasks_batch_one_per_key")]
        indexes = [
            # Batches whose ``on_first_failure`` may have to be published.
            models.Index(
                fields=["id"],
                condition=Q(on_first_failure__isnull=False, first_failure=None),
                name="tasks_batch_first_failure",
            )
        ]

    def __str__(self) -> str:
        return f"batch {self.key or self.pk}"

    def counts(self) -> dict[str, int]:
        """Return how many tasks it has in ``total``, and how many of each status, up to a million of each.

        After its end: the counts at its end. ``pending`` tasks may be due later. Index ``tasks_task_in_batch``.
        """
        if self.state in ("done", "failed") and self.counted:
            return dict(self.counted)
        return self.count_now()

    def count_now(self) -> dict[str, int]:
        """Return the counts of the tasks that exist now."""
        mine: QuerySet[Model] = task_rows(self._state.db).filter(batch=self.pk).order_by()
        held = Q(state_claim__isnull=False)
        conditions = {
            "pending": ~held & Q(state__in=["pending", "shared"]),
            "running": held,
            **{state: Q(state=state) for state in TERMINAL},
        }
        counts = {name: mine.filter(each)[:MAX_COUNTED].count() for name, each in conditions.items()}
        return {"total": sum(counts.values()), **counts}

    @property
    def progress(self) -> Portion:
        """How many of its tasks have ended, for a bar."""
        counts = self.counts()
        said = [f"{counts[state]:,} {state}" for state in ("errored", "canceled") if counts[state]]
        ended = sum(counts[state] for state in TERMINAL)
        return Portion(done=ended, total=counts["total"] or None, text=", ".join(said))
