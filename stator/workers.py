"""The table of workers: which processes there are, what they serve, and when each was last heard of."""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    DateTimeField,
    Index,
    JSONField,
    Model,
    PositiveIntegerField,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Now

from stator import columns

# A worker that has not been heard of for so long, by the clock of the database, is taken for dead.
WORKER_ALIVE = 30.0

# Workers report after so long: twice may fail before they are taken for dead.
WORKER_BEAT = 10.0

# Rows of workers that are gone are kept for so long.
WORKER_RETENTION = 86400.0

# Workers that are read at once; more would say nothing new about who serves a model.
MOST_WORKERS = 1000


class WorkerQuerySet(QuerySet["Worker"]):
    """Rows of the table of workers."""

    def live(self) -> "WorkerQuerySet":
        """Those that have been heard of lately and did not say goodbye."""
        return self.filter(stopped=None, heartbeat__gt=columns.after(-WORKER_ALIVE))

    def with_status(self) -> "WorkerQuerySet":
        """Each with its ``status``: ``alive``, ``gone`` without a word, or ``stopped``; and the time ``now``."""
        status = Case(
            When(stopped__isnull=False, then=Value("stopped")),
            When(heartbeat__lte=columns.after(-WORKER_ALIVE), then=Value("gone")),
            default=Value("alive"),
        )
        return self.annotate(status=status, now=Now())


class Worker(Model):
    """A worker process as it last reported itself in one database; all moments are the database's."""

    id = CharField(primary_key=True, max_length=12)
    host = CharField(max_length=255)
    pid = PositiveIntegerField()
    version = CharField(max_length=50)
    models = JSONField(default=list, help_text="Labels of the models it works on in this database.")
    database = CharField(max_length=100)
    started = DateTimeField(db_default=Now())
    heartbeat = DateTimeField(db_default=Now())
    stopped = DateTimeField(null=True, blank=True)
    running = PositiveIntegerField(default=0)
    handled = BigIntegerField(default=0)
    lost = BigIntegerField(default=0)

    objects: ClassVar[Any] = WorkerQuerySet.as_manager()

    class Meta:
        indexes = [Index(fields=["heartbeat"], name="stator_worker_heartbeat")]

    def __str__(self) -> str:
        return f"{self.id} on {self.host}, process {self.pid}"

    def serves(self, label: str) -> bool:
        """Whether it works on a model."""
        return label in self.models


class Overview(Worker):
    """No table of its own: what the admin links its overview to, and what ``view_overview`` is the permission for."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name_plural = "overview"


def live_workers(using: str) -> list[Worker]:
    """The workers of a database that are alive, the latest first."""
    return list(Worker.objects.using(using).live().order_by("-started", "pk")[:MOST_WORKERS])


def worker_of(token: UUID) -> str:
    """The id of the worker that made the token of a claim."""
    return f"{token.int >> 80:012x}"
