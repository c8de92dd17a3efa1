"""The worker processes, and the objects that each runs now."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stator.overview.depths import Held
from stator.rows.workers import Worker, worker_of

# Workers that are shown, live ones first.
SHOWN = 50

# Objects that are listed for one worker, those that run longest.
NAMED = 3


@dataclass(slots=True)
class Crew:
    """Worker processes of one database. ``live``: the number of live workers that serve a model, by its label."""

    workers: list["Hand"] = field(default_factory=list)
    live: Counter[str] = field(default_factory=Counter)
    more: bool = False


@dataclass(slots=True)
class Hand:
    """One worker, with seconds since its start and its last heartbeat; ``runs`` has labels and objects."""

    worker: Worker
    status: str
    since: float
    heard: float
    runs: list[tuple[str, Held]] = field(default_factory=list)

    @property
    def shown(self) -> list[tuple[str, Held]]:
        """The objects that run longest."""
        return sorted(self.runs, key=lambda run: -run[1].running)[:NAMED]


def crew(using: str, held: Iterable[tuple[str, Held]]) -> Crew:
    """Return the workers of a database with the claimed rows that they hold; one statement."""
    runs: dict[str, list[tuple[str, Held]]] = defaultdict(list)
    for label, one in held:
        runs[worker_of(one.token)].append((label, one))
    rows: Any = Worker.objects.using(using)
    workers = list(rows.with_status().defer("published").order_by("status", "-started", "pk")[: SHOWN + 1])
    found = Crew([_hand(worker, runs) for worker in workers[:SHOWN]], more=len(workers) > SHOWN)
    for worker in workers:
        if worker.status == "alive":
            found.live.update(worker.models)
    return found


def _hand(worker: Worker, runs: dict[str, list[tuple[str, Held]]]) -> Hand:
    found: Any = worker
    since = (found.stopped or found.now) - found.started
    heard = max(0.0, (found.now - found.heartbeat).total_seconds())
    return Hand(worker, found.status, since.total_seconds(), heard, runs.get(worker.pk, []))
