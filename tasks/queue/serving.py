"""The workers that serve a queue: worker processes publish their actions; named workers have asked for work lately."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models import Q

from stator.graph.durations import seconds_of
from stator.models import Now, Worker
from stator.signals import on_heartbeat
from stator.statements import is_one_of
from tasks.actions.registry import declared, registry
from tasks.conf import DJANGO
from tasks.queue.eligibility import has_metadata
from tasks.rows.claimants import CLAIMANT_ALIVE, MAX_CLAIMANTS, Claimant
from tasks.rows.queues import QueueRow
from tasks.rows.tables import Rows

if TYPE_CHECKING:
    from tasks.models import Queue

# The most actions that a process publishes. A process with more publishes none, and counts as having any action.
MAX_ACTIONS, MAX_CHARACTERS = 500, 20_000
MAX_PUBLISHED_QUEUES = 100

# The most worker processes that are read, the latest first.
MAX_PROCESSES = 1000

LABEL = "tasks.task"

# What a process takes from a queue: the metadata, if that is limited, and the actions; None for any.
Offer = tuple[tuple[tuple[str, object], ...], frozenset[str] | None]


def connect() -> None:
    """Have worker processes publish their actions and queues."""
    on_heartbeat.connect(_publish, dispatch_uid="tasks.serving")


def _publish(sender: object, **kwargs: object) -> dict[str, dict[str, object]]:
    """Return the actions of this process by queue, and the queues that it is limited to."""
    actions = registered()
    sizes = [len(queue) + len(name) for queue, names in actions.items() for name in names]
    published: dict[str, object] = {}
    if len(sizes) <= MAX_ACTIONS and sum(sizes) <= MAX_CHARACTERS:
        published["actions"] = actions
    if metadata := getattr(sender, "metadata", None):
        published["metadata"] = dict(metadata)
    queues, excluded = (sorted(getattr(sender, name, ())) for name in ("queues", "excluded_queues"))
    if len(queues) <= MAX_PUBLISHED_QUEUES:
        published["queues"] = queues or None
    if excluded:
        published["excluded_queues"] = excluded[:MAX_PUBLISHED_QUEUES]
    return {"tasks": published}


def registered() -> dict[str, list[str]]:
    """Return the actions of this process by queue; an empty name stands for all queues."""
    actions: dict[str, list[str]] = defaultdict(list)
    for queue, name in sorted((queue, name) for name, each in registry.copy().items() for queue in list(each)):
        actions[queue].append(name)
    return actions


@dataclass(frozen=True, slots=True)
class Process:
    """A live worker process.

    ``queues``, ``metadata``: what it is limited to. ``excluded``: queues that it leaves alone. ``actions``: see
    :func:`registered`. None stands for any: the process is not limited, or does not publish its actions, because there
    are very many.
    """

    name: str
    queues: frozenset[str] | None
    actions: Mapping[str, frozenset[str]] | None
    metadata: Mapping[str, object] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, published: object) -> "Process":
        """Return the process of a row in the table of workers; values of an unknown form count as any."""
        values = published.get("tasks") if isinstance(published, dict) else None
        values = values if isinstance(values, dict) else {}
        queues, actions, metadata = values.get("queues"), values.get("actions"), values.get("metadata")
        return cls(
            name,
            frozenset(queues) if isinstance(queues, list) else None,
            {queue: frozenset(names) for queue, names in actions.items()} if isinstance(actions, dict) else None,
            metadata if isinstance(metadata, dict) else {},
            frozenset(excluded) if isinstance(excluded := values.get("excluded_queues"), list) else frozenset(),
        )

    def takes(self, queue: QueueRow) -> bool:
        """Return whether it claims from a queue."""
        return (self.queues is None or queue.name in self.queues) and queue.name not in self.excluded

    def names(self, queue: QueueRow) -> frozenset[str] | None:
        """Return the actions that it has for a queue; None for any."""
        if self.actions is None:
            return None
        return self.actions.get(queue.name, frozenset()) | self.actions.get("", frozenset())


@dataclass(frozen=True, slots=True)
class Service:
    """The workers that serve one queue in one database.

    ``processes``: all live worker processes that run tasks there. ``asked``: the seconds since each named worker of the
    last day asked the queue for work, the latest first.
    """

    queue: "Queue"
    processes: tuple[Process, ...]
    asked: dict[str, float] = field(default_factory=dict)

    @property
    def named(self) -> list[str]:
        """The live named workers."""
        return [worker for worker, seconds in self.asked.items() if seconds < CLAIMANT_ALIVE]

    @property
    def taking(self) -> list[Process]:
        """The processes that claim from the queue, whatever actions they have."""
        return [process for process in self.processes if process.takes(self.queue)]

    @property
    def names(self) -> list[str]:
        """The names of all live workers that serve the queue, sorted: named workers and processes."""
        return sorted({*self.named, *(process.name for process in self.taking)})

    @property
    def live(self) -> int:
        """How many live workers serve the queue, a name of several processes once for each."""
        return len(self.named) + len(self.taking)

    @property
    def offers(self) -> dict[Offer, list[str]]:
        """The names of the processes by what they take from the queue."""
        names_of: dict[Offer, list[str]] = defaultdict(list)
        for process in self.taking:
            names_of[tuple(sorted(process.metadata.items())), process.names(self.queue)].append(process.name)
        return names_of


def service_of(queue: "Queue") -> Service:
    """Return the workers that serve a queue in the database of this copy; two statements."""
    return services_of([queue], str(queue._state.db))[0]


def services_of(queues: "Collection[Queue]", using: str) -> list[Service]:
    """Return the workers that serve each of these queues in a database; two statements."""
    asked: dict[object, dict[str, float]] = defaultdict(dict)
    rows = Claimant.objects.using(using).annotate(read_at=Now()).order_by("-seen", "pk")
    claimants = rows.filter(is_one_of(rows, [queue.pk for queue in queues], "queue"))
    for queue, worker, moment, now in claimants.values_list("queue", "worker", "seen", "read_at")[:MAX_CLAIMANTS]:
        asked[queue][worker] = seconds_of(now - moment)
    processes = processes_in(using)
    return [Service(queue, processes, asked[queue.pk]) for queue in queues]


def processes_in(using: str) -> tuple[Process, ...]:
    """Return the live worker processes that work on tasks in a database."""
    live = Worker.objects.using(using).live().order_by("-started", "pk")
    rows = live.values_list("pk", "name", "models", "published")[:MAX_PROCESSES]
    return tuple(Process.of(name or pk, published) for pk, name, models, published in rows if LABEL in models)


def is_anywhere(action: str, queue: "Queue", processes: Iterable[Process]) -> bool:
    """Return whether this code or one of the processes has an action, or programs elsewhere serve its queue."""
    if queue.actions_elsewhere or declared(action, queue.name) is not None:
        return True
    return any((names := process.names(queue)) is None or action in names for process in processes)


def taken(offer: Offer, rows: Rows) -> Q:
    """Return the condition that a process takes a task; each can run tasks of Django's framework."""
    metadata, names = offer
    known = Q() if names is None else Q(action__in=sorted(names)) | Q(action__startswith=DJANGO)
    return Q(known, elsewhere_only=False) & (has_metadata(rows, dict(metadata)) if metadata else Q())
