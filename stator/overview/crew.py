"""The worker processes, and the objects that each runs now."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F

from stator.graph.durations import seconds_of, span
from stator.models import StatorModel
from stator.overview.depths import LEASED, Held
from stator.querysets import OperatorQuerySet
from stator.rows.process_exits import exits_in
from stator.rows.workers import MOST_WORKERS, Worker, worker_of

# Workers that are shown, live ones first.
SHOWN = 50

# What a worker is that has not been heard of for ``WORKER_ALIVE``.
DEAD = "probably dead"

# Objects that are listed for one worker, those that run longest.
NAMED = 3


@dataclass(slots=True)
class Crew:
    """Worker processes of one database. ``live``: the number of live workers that serve a model, by its label."""

    workers: list["Hand"] = field(default_factory=list)
    live: Counter[str] = field(default_factory=Counter)

    @property
    def shown(self) -> list["Hand"]:
        """The workers that are shown: dead ones that hold objects, then live ones."""
        return sorted(self.workers, key=lambda hand: not hand.is_missed)[:SHOWN]

    @property
    def missed(self) -> list["Hand"]:
        """The workers that fell silent and hold objects."""
        return [hand for hand in self.workers if hand.is_missed]


@dataclass(slots=True)
class Hand:
    """One worker, with the seconds it was up and since its last heartbeat; ``runs`` has labels and objects."""

    worker: Worker
    status: str
    since: float
    heard: float
    runs: list[tuple[str, Held]] = field(default_factory=list)
    # Why no notifications reach it, by its name of the database.
    deaf: dict[str, str] = field(default_factory=dict)
    # How its process ended as a phrase, if the one that replaced it has told.
    ending: str = ""

    @property
    def end(self) -> str:
        """How its process ended for people, as sure as it is known."""
        return death(self.ending)

    @property
    def is_missed(self) -> bool:
        """Whether it fell silent and holds objects."""
        return self.status == "gone" and bool(self.runs)

    @property
    def told(self) -> str:
        """Its status for people."""
        if self.status != "gone":
            return self.status
        return f"silent for {span(self.heard)}, {self.end}{f', holds {len(self.runs):,}' if self.runs else ''}"

    @property
    def shown(self) -> list[tuple[str, Held]]:
        """The objects that run longest."""
        return sorted(self.runs, key=lambda run: -run[1].running)[:NAMED]


def death(ending: str) -> str:
    """Return what to call a silent worker: surely dead if it is known how its process ended."""
    return f"dead ({ending})" if ending else DEAD


def crew(using: str, held: Iterable[tuple[str, Held]]) -> Crew:
    """Return the workers of a database with the claimed rows that they hold; one statement."""
    runs: dict[str, list[tuple[str, Held]]] = defaultdict(list)
    for label, one in held:
        runs[worker_of(one.token)].append((label, one))
    rows: Any = Worker.objects.using(using)
    read = rows.with_status().annotate(replaced=F("published__replaced"), deaf=F("published__deaf")).defer("published")
    workers = list(read.order_by("status", "-started", "pk")[:MOST_WORKERS])
    ends = exits_in((worker.host, worker.replaced) for worker in workers)
    found = Crew([_hand(worker, runs, ends.get((worker.host, worker.pid), "")) for worker in workers])
    for worker in workers:
        if worker.status == "alive":
            found.live.update(worker.models)
    return found


def holding(using: str, models: Iterable[type[StatorModel]]) -> Counter[str]:
    """Return how many objects of some models each worker holds, by its id; one statement for each. Index ``st_lease``.

    Heartbeats know it only as it was, and those of a dead worker for ever.
    """
    found: Counter[str] = Counter()
    for model in models:
        rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=using)
        held = rows.leased().order_by("state_locked_until").values_list("state_claim", flat=True)[:LEASED]
        found.update(worker_of(token) for token in held if token is not None)
    return found


def _hand(worker: Worker, runs: dict[str, list[tuple[str, Held]]], ending: str) -> Hand:
    found: Any = worker
    # A dead worker is not up any more.
    until = found.stopped or (found.heartbeat if found.status == "gone" else found.now)
    heard = seconds_of(found.now - found.heartbeat)
    since = seconds_of(until - found.started)
    return Hand(worker, found.status, since, heard, runs.get(worker.pk, []), found.deaf or {}, ending)
