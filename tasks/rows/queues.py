"""The columns of queues, and the workers that ask them for work."""

from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Exists, Q, QuerySet, Value

from stator.models import MomentField, Now
from tasks.exceptions import TaskError
from tasks.rows.claimants import CLAIMANT_ALIVE, MAX_CLAIMANTS, SEEN_EVERY, Claimant
from tasks.rows.clock import Later
from tasks.rows.tables import locked

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from tasks.models import Task


def label_of(queue: str) -> str:
    """Return the label of a queue in the framework's statistics, beside the labels of models."""
    return f"tasks.task:{queue}"


class QueueRow(models.Model):
    """The table of :class:`tasks.models.Queue`, and the properties of a row."""

    class Kind(models.TextChoices):
        """Whether tasks may keep each other from running."""

        SIMPLE = "simple"
        EXCLUSIVE = "exclusive"

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.SIMPLE)
    exclusive_key = models.CharField(max_length=100, blank=True)
    # Whether its tasks are in all parts of a table that is divided, and not in the first alone.
    spread = models.BooleanField(default=False, db_default=False)
    lease = models.FloatField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    invisible_for = models.FloatField(null=True, blank=True)
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    retention = models.FloatField(null=True, blank=True)
    # For errored tasks. Empty: the setting's value, or else ``retention``.
    failed_retention = models.FloatField(null=True, blank=True)
    # Whether a worker that released or failed a task, or lost its lease on it, may claim it again.
    same_worker_again = models.BooleanField(default=False)
    # Without same_worker_again: how many times such a worker may still claim it again. Empty: a named worker never may;
    # a worker process first leaves the task to other processes, and then tries it again.
    worker_retries = models.PositiveSmallIntegerField(null=True, blank=True)
    # Whether a worker may hold only one task of this queue at a time.
    one_per_worker = models.BooleanField(default=False)
    # Whether external programs serve the queue. If so, any action can be published; if not, unknown ones are refused.
    actions_elsewhere = models.BooleanField(default=False)
    # The actions of this site's code that programs may publish over HTTP.
    http_actions = models.JSONField(default=list, db_default=Value([], models.JSONField()), blank=True)
    publish_paused = models.BooleanField(default=False)  # tasks.extensions.queue_pauses
    claim_paused = models.BooleanField(default=False)  # tasks.extensions.queue_pauses
    pause_reason = models.CharField(max_length=200, blank=True)  # tasks.extensions.queue_pauses
    pause_author = models.CharField(max_length=150, blank=True)  # tasks.extensions.queue_pauses
    pause_until = models.DateTimeField(null=True, blank=True)  # tasks.extensions.queue_pauses
    created = MomentField(db_default=Now(), editable=False)

    # Whether statements that use the queue as it was read may publish into it and claim from it, and whether claims are
    # served now; an extension may say no.
    takes_at_once = gives_at_once = gives_tasks = True
    # Set for a request over HTTP: whether the request's token lists this queue.
    in_reach: bool
    # The related manager, which Django adds with the model of tasks.
    tasks: "RelatedManager[Task]"

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="simple", exclusive_key="") | (Q(kind="exclusive") & ~Q(exclusive_key="")),
                name="tasks_queue_key_if_exclusive",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def refuse_tasks(self) -> None:
        """Raise ``PublishRefused`` if the queue takes no new tasks now; an extension may say so."""

    @property
    def exclusive(self) -> bool:
        """Whether at most one task per value of the exclusive key runs at a time."""
        return self.kind == self.Kind.EXCLUSIVE

    def current(self, asking: str = "") -> Self:
        """Return the queue as it is configured now, and the database's time as ``read_at``.

        ``asking``: a worker that asks for work. If that is in a recent record, :meth:`note_worker` does nothing for it.
        """
        rows = self._row.annotate(read_at=Now())
        if asking:
            rows = rows.annotate(noted=Exists(self._noted(asking)))
        row = rows.first()
        if row is None:
            raise TaskError(f"queue {self.name} was deleted")
        self.__dict__["known"] = row
        row.__dict__["noted_worker"] = asking if row.__dict__.get("noted") else ""
        return row

    def lock(self) -> None:
        """Lock the row until the transaction ends, so that claims which lock it too wait."""
        list(locked(self._row).values_list("pk"))

    def lock_worker(self, worker: str) -> None:
        """Lock the row of a worker that :meth:`note_worker` has noted, until the transaction ends."""
        list(locked(self._asking(worker)).values_list("pk"))

    def note_worker(self, worker: str) -> None:
        """Record that a worker asks for work, unless that was recorded within the last 10 s."""
        if self.__dict__.pop("noted_worker", "") == worker or self._noted(worker).exists():
            return
        if not self._asking(worker).update(seen=Now()):
            new = Claimant(queue_id=self.pk, worker=worker)
            Claimant.objects.using(self._state.db).bulk_create([new], ignore_conflicts=True)

    def _noted(self, worker: str) -> QuerySet[Claimant]:
        return self._asking(worker, seen__gt=Later(-SEEN_EVERY))

    def _asking(self, worker: str, **lookups: object) -> QuerySet[Claimant]:
        return QuerySet(Claimant, using=self._state.db).filter(queue=self.pk, worker=worker, **lookups)

    def live_workers(self) -> list[str]:
        """Return the names of workers that asked for work within the last minute, sorted."""
        claimants = Claimant.objects.using(self._state.db).filter(queue=self.pk, seen__gt=Later(-CLAIMANT_ALIVE))
        return list(claimants.order_by("worker").values_list("worker", flat=True)[:MAX_CLAIMANTS])

    @property
    def _row(self) -> QuerySet[Self]:
        return QuerySet(type(self), using=self._state.db).filter(pk=self.pk)
