"""The table of workers: their processes, the models that they serve, and their latest heartbeats."""

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

from stator.rows import columns

# Seconds without a heartbeat, by the database's clock, after which a worker counts as dead.
WORKER_ALIVE = 30.0

# Seconds between heartbeats: two may fail before a worker counts as dead.
WORKER_BEAT = 10.0

# Seconds for which rows of ended workers are kept.
WORKER_RETENTION = 86400.0

# The most workers that are read at once; more would not change who serves a model.
MOST_WORKERS = 1000


class WorkerQuerySet(QuerySet["Worker"]):
    """Rows of the table of workers."""

    def live(self) -> "WorkerQuerySet":
        """Return the workers with a recent heartbeat that have not stopped."""
        return self.filter(stopped=None, heartbeat__gt=columns.after(-WORKER_ALIVE))

    def with_status(self) -> "WorkerQuerySet":
        """Annotate each with ``status``: ``alive``, ``gone`` (no heartbeat) or ``stopped``, and the time ``now``."""
        status = Case(
            When(stopped__isnull=False, then=Value("stopped")),
            When(heartbeat__lte=columns.after(-WORKER_ALIVE), then=Value("gone")),
            default=Value("alive"),
        )
        return self.annotate(status=status, now=Now())


class Worker(Model):
    """A worker process as it last reported itself in one database; all times are the database's."""

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
    # The default of the database is for workers of older releases, which publish nothing.
    published = JSONField(
        default=dict,
        db_default=Value({}, JSONField()),
        editable=False,
        help_text="What apps publish about it, such as the actions it has.",
    )

    objects = WorkerQuerySet.as_manager()

    class Meta:
        indexes = [Index(fields=["heartbeat"], name="stator_worker_heartbeat")]

    def __str__(self) -> str:
        return f"{self.id} on {self.host}, process {self.pid}"

    def serves(self, label: str) -> bool:
        """Return whether it works on a model."""
        return label in self.models


class Overview(Worker):
    """A proxy without a table, for the admin's link to the overview and the permission ``view_overview``."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name_plural = "overview"


def live_workers(using: str) -> list[Worker]:
    """Return the live workers of a database, the latest first."""
    live = Worker.objects.using(using).live().defer("published")
    return list(live.order_by("-started", "pk")[:MOST_WORKERS])


def worker_of(token: UUID) -> str:
    """Return the id of the worker that made the token of a claim."""
    return f"{token.int >> 80:012x}"
