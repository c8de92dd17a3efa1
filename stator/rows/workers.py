"""The table of workers: their processes, the models that they serve, and their latest heartbeats."""

import os
import re
import socket
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    DateTimeField,
    F,
    Index,
    JSONField,
    Model,
    PositiveIntegerField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.expressions import Combinable

from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.readings import READINGS

# Of what workers publish: their graphs, and the states that they leave to other code.
GRAPHS, LEFT = F("published__stator__graphs"), F("published__stator__left")

# Seconds without a heartbeat, by the database's clock, after which a worker counts as silent.
WORKER_ALIVE = 30.0

# Seconds between heartbeats: two may fail before a worker counts as silent.
WORKER_BEAT = 10.0

# Seconds that rows of ended workers are kept.
WORKER_RETENTION = 86400.0

# The bits of a claim's token after the id of its worker.
TOKEN_BITS = 80

# The most workers that are read at once; more would not change who serves a model.
MAX_WORKERS = 1000


class WorkerQuerySet(QuerySet["Worker"]):
    """Rows of the table of workers."""

    def live(self) -> "WorkerQuerySet":
        """Return the workers with a recent heartbeat that have not stopped."""
        return self.filter(stopped=None, heartbeat__gt=columns.after(-WORKER_ALIVE))

    def with_status(self) -> "QuerySet[Any]":
        """Annotate each with ``status``: ``alive``, ``silent`` (no heartbeat) or ``stopped``, and the time ``now``."""
        status = Case(
            When(stopped__isnull=False, then=Value("stopped")),
            When(heartbeat__lte=columns.after(-WORKER_ALIVE), then=Value("silent")),
            default=Value("alive"),
        )
        return self.annotate(status=status, now=Now())


class Worker(Model):
    """A worker process as it last reported itself in one database; all times are the database's."""

    id = CharField(primary_key=True, max_length=12)
    name = CharField(
        max_length=100, default="",
        help_text="From --name, else the host and the process. A process that replaces another keeps its name.",
    )  # fmt: skip
    host = CharField(max_length=255)
    pid = PositiveIntegerField()
    version = CharField(max_length=50)
    models = JSONField(default=list, help_text="Labels of the models it works on in this database.")
    database = CharField(max_length=100)
    started = MomentField(db_default=Now())
    heartbeat = MomentField(db_default=Now())
    stopped = DateTimeField(null=True, blank=True)
    running = PositiveIntegerField(default=0)
    handled = BigIntegerField(default=0)
    lost = BigIntegerField(default=0)
    published = JSONField(
        default=dict,
        editable=False,
        help_text="What apps publish about it, such as the actions it has.",
    )

    objects = WorkerQuerySet.as_manager()

    # Of those that were read ``with_status()``.
    status: str
    now: datetime

    class Meta:
        indexes = [Index(fields=["heartbeat"], name="stator_worker_heartbeat")]

    def __str__(self) -> str:
        return f"{self.name or self.id} on {self.host}, process {self.pid}"

    def serves(self, label: str) -> bool:
        """Return whether it works on a model."""
        return label in self.models


def are_shown() -> bool:
    """Return whether workers show themselves in the table, so that none there means none: an extension does it."""
    return "fleet" in READINGS


def live_workers(using: str, **also: Combinable) -> list[Worker]:
    """Return the live workers of a database, the latest first; ``also``: what is read of each."""
    live = Worker.objects.using(using).live().defer("published").annotate(**also)
    return list(live.order_by("-started", "pk")[:MAX_WORKERS])


def tokens_of(worker: str) -> tuple[UUID, UUID]:
    """Return the first and the last token that a worker can make."""
    first = int(worker, 16) << TOKEN_BITS
    return UUID(int=first), UUID(int=first | (1 << TOKEN_BITS) - 1)


def worker_of(token: UUID) -> str:
    """Return the id of the worker that made the token of a claim."""
    return f"{token.int >> TOKEN_BITS:012x}"


def default_name() -> str:
    """Return the name of a worker that was given none: the host and the number of this process."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-") or "host"
    return f"{host[:80]}:{os.getpid()}"


def give_name(worker_id: str, name: str) -> None:
    """Note the name of a worker of this process, for :func:`name_of`."""
    if len(_given) >= MAX_WORKERS:
        del _given[next(iter(_given))]
    _given[worker_id] = name


def name_of(worker_id: str, using: str | None = None) -> str:
    """Return the name of a worker, its id if it has none; ``using``: the database with workers of other processes."""
    if (name := _given.get(worker_id)) or not using:
        return name or worker_id
    with suppress(Worker.DoesNotExist):
        return _name_in(worker_id, using)
    return worker_id


def names_of(worker_ids: set[str], using: str) -> dict[str, str]:
    """Return the names of workers by id, with one query at most; unknown ones have their id as their name."""
    known = {pk: _given[pk] for pk in worker_ids if pk in _given}
    if others := worker_ids - known.keys():
        known |= dict(Worker.objects.using(using).filter(pk__in=others).exclude(name="").values_list("pk", "name"))
    return {pk: known.get(pk, pk) for pk in worker_ids}


def ids_of(name: str, using: str) -> list[str]:
    """Return the ids of the latest processes with this name, or this id if nobody has the name; one query."""
    named = Worker.objects.using(using).filter(Q(name=name) | Q(pk=name)).order_by("-heartbeat")
    return list(named.values_list("pk", flat=True)[:MAX_OF_NAME])


# Processes of one name that may still hold objects; each restart makes one.
MAX_OF_NAME = 20

# The latest workers of this process, by id.
_given: dict[str, str] = {}


@lru_cache(maxsize=MAX_WORKERS)
def _name_in(worker_id: str, using: str) -> str:
    # Raises for a worker that has no row yet, so that only names are cached: its first claim may come before its row.
    names = list(Worker.objects.using(using).filter(pk=worker_id).values_list("name", flat=True))
    if not names:
        raise Worker.DoesNotExist
    return names[0] or worker_id
