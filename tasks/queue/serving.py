"""The workers that serve a queue: worker processes publish their actions; named workers have asked for work lately."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet

from stator.graph.durations import seconds_of
from stator.models import Now, Worker
from stator.signals import on_heartbeat
from tasks.actions.registry import registry
from tasks.conf import DJANGO
from tasks.queue.eligibility import has_metadata
from tasks.rows.claimants import CLAIMANT_ALIVE, MAX_CLAIMANTS, Claimant
from tasks.rows.queues import QueueRow
from tasks.rows.tasks import TaskRow

# The most actions that a process publishes. A process with more publishes none, and counts as having any action.
MAX_ACTIONS, MAX_CHARACTERS = 500, 20_000
MAX_PUBLISHED_QUEUES = 100

# The most worker processes that are read, the latest first.
MAX_PROCESSES = 1000

LABEL = "tasks.task"


def connect() -> None:
    """Have worker processes publish their actions and queues."""
    on_heartbeat.connect(_publish, dispatch_uid="tasks.serving")


def _publish(sender: Any, **kwargs: object) -> dict[str, Any]:
    """Return the actions of this process by queue, and the queues that it is limited to."""
    actions = registered()
    sizes = [len(queue) + len(name) for queue, names in actions.items() for name in names]
    published: dict[str, Any] = {}
    if len(sizes) <= MAX_ACTIONS and sum(sizes) <= MAX_CHARACTERS:
        published["actions"] = actions
    if metadata := getattr(sender, "metadata", None):
        published["metadata"] = dict(metadata)
    queues = sorted(getattr(sender, "queues", ()))
    if len(queues) <= MAX_PUBLISHED_QUEUES:
        published["queues"] = queues or None
    return {"tasks": published}


def registered() -> dict[str, list[str]]:
    """Return the actions of this process by queue; an empty name stands for all queues."""
    actions: dict[str, list[str]] = defaultdict(list)
    for queue, name in sorted((queue, name) for name, each in registry.copy().items() for queue in list(each)):
        actions[queue].append(name)
    return actions


@dataclass(frozen=True, slots=True)
class Process:
    """A live worker process. ``queues``, ``metadata``: what it is limited to. ``actions``: see :func:`registered`.

    None stands for any: the process is not limited, or does not publish its actions, because there are very many.
    """

    name: str
    queues: frozenset[str] | None
    actions: Mapping[str, frozenset[str]] | None
    metadata: Mapping[str, object] = field(default_factory=dict)

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
        )

    def takes(self, queue: QueueRow) -> bool:
        """Return whether it claims from a queue."""
        return self.queues is None or queue.name in self.queues

    def names(self, queue: QueueRow) -> frozenset[str] | None:
        """Return the actions that it has for a queue; None for any."""
        if self.actions is None:
            return None
        return self.actions.get(queue.name, frozenset()) | self.actions.get("", frozenset())

    def matches(self, task: TaskRow) -> bool:
        """Return whether a task's metadata has the values that the process is limited to."""
        own = task.metadata
        # True equals 1 in Python, but not in JSON.
        return all(
            name in own and own[name] == value and isinstance(own[name], bool) == isinstance(value, bool)
            for name, value in self.metadata.items()
        )

    def serves(self, task: TaskRow) -> bool:
        """Return whether it can run a task; every process can run tasks of Django's framework."""
        if task.elsewhere_only or not self.takes(task.queue) or not self.matches(task):
            return False
        names = self.names(task.queue)
        return names is None or task.action in names or task.action.startswith(DJANGO)


@dataclass(frozen=True, slots=True)
class Service:
    """The workers that serve one queue in one database.

    ``processes``: all live worker processes that run tasks there. ``asked``: the seconds since each named worker of the
    last day asked the queue for work, the latest first.
    """

    queue: QueueRow
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

    def serving(self, task: TaskRow) -> set[str]:
        """Return the names of the processes that can run a task of the queue."""
        return {process.name for process in self.processes if process.serves(task)}

    @property
    def offers(self) -> frozenset[tuple[tuple[tuple[str, Any], ...], frozenset[str] | None]]:
        """What the processes take from the queue: pairs of the metadata, if limited, and the actions; None for any."""
        return frozenset(
            (tuple(sorted(process.metadata.items())), process.names(self.queue)) for process in self.taking
        )


def service_of(queue: QueueRow) -> Service:
    """Return the workers that serve a queue in the database of this copy; two statements."""
    using = str(queue._state.db)
    seen = Claimant.objects.using(using).filter(queue=queue.pk)
    return Service(queue, processes_in(using), dict(_asked(seen).get(queue.pk, {})))


def services_of(queues: list[Any], using: str) -> list[Service]:
    """Return the workers that serve each of these queues in a database; two statements."""
    processes, asked = processes_in(using), _asked(Claimant.objects.using(using).all())
    return [Service(queue, processes, asked.get(queue.pk, {})) for queue in queues]


def processes_in(using: str) -> tuple[Process, ...]:
    """Return the live worker processes that work on tasks in a database."""
    live = Worker.objects.using(using).live().order_by("-started", "pk")
    rows = live.values_list("pk", "name", "models", "published")[:MAX_PROCESSES]
    return tuple(Process.of(name or pk, published) for pk, name, models, published in rows if LABEL in models)


def _asked(rows: QuerySet[Claimant]) -> dict[Any, dict[str, float]]:
    found: dict[Any, dict[str, float]] = defaultdict(dict)
    latest = rows.annotate(read_at=Now()).order_by("-seen", "pk").values_list("queue", "worker", "seen", "read_at")
    for queue, worker, seen, now in latest[:MAX_CLAIMANTS]:
        found[queue][worker] = seconds_of(now - seen)
    return found


def of_processes(service: Service) -> Q | None:
    """Return the condition that a worker process can run a task of the queue; None if none claims from it."""
    if not service.taking:
        return None
    rows: QuerySet[Any] = QuerySet(service.queue.tasks.model, using=service.queue._state.db)
    offers = []
    for metadata, names in service.offers:
        offer = Q() if names is None else Q(action__in=sorted(names)) | Q(action__startswith=DJANGO)
        offers.append(offer & has_metadata(rows, dict(metadata)) if metadata else offer)
    return Q(elsewhere_only=False) & (Q() if Q() in offers else reduce(or_, offers))
