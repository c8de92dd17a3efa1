"""Versions of code in a fleet: the graphs that each live worker runs, compared with each other and with this process.

Workers publish the fingerprints of the graphs that they run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from django.db.models import F, Model

from stator.graph.fingerprints import fingerprint, fingerprints
from stator.graph.graphs import StateGraph
from stator.rows.meta import graph_of
from stator.rows.state_column import state_field
from stator.rows.workers import Worker, live_workers
from stator.texts import listed

# The most characters of states that a worker publishes. Beyond that it publishes only the fingerprints of its graphs.
MAX_CHARACTERS = 60_000

HERE = "this process"

# What each worker of a fleet has to be read with; and what its survey reads, the states that it leaves to other code.
GRAPHS, LEFT = F("published__stator__graphs"), F("published__stator__left")

# The states of a graph by name, each with its fingerprint.
States = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of something that has names, such as the states of a graph, and the processes that run it.

    ``workers``: live workers as ``host/pid``. ``here``: this process has it too. ``names``: None if not published.
    """

    workers: tuple[str, ...]
    names: States | None
    here: bool = False

    @property
    def processes(self) -> list[str]:
        """The processes that run it."""
        return [*self.workers, *([HERE] if self.here else [])]


def graphs_published(
    graphs: Mapping[str, type[StateGraph]], left: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[str, object]:
    """Return what a worker publishes about its graphs, and the states that it leaves, by the label of their models."""
    states = {label: dict(fingerprints(graph)) for label, graph in sorted(graphs.items())}
    published: dict[str, object] = {"graphs": {label: fingerprint(each) for label, each in states.items()}}
    if sum(len(name) + len(each) + 8 for some in states.values() for name, each in some.items()) <= MAX_CHARACTERS:
        published["states"] = states
    if some := {label: sorted(names) for label, names in left.items() if names}:
        published["left"] = some
    return {"stator": published}


def left_by(workers: Iterable[Any], label: str) -> frozenset[str]:
    """Return the states of a model that each of these workers leaves to other code, if they were read with ``LEFT``."""
    published = (worker.left if isinstance(worker.left, dict) else {} for worker in workers)
    published_states: list[frozenset[str]] = [frozenset(left.get(label, ())) for left in published]
    return frozenset.intersection(*published_states) if published_states else frozenset()


@dataclass
class Fleet:
    """The live workers of a database, the latest first, with the fingerprints of the graphs that each publishes."""

    using: str
    workers: list[Worker] = field(default_factory=list)

    @classmethod
    def of(cls, using: str) -> "Fleet":
        """Read the live workers; one statement. A further one follows if their graphs differ."""
        return cls(using, live_workers(using, graphs=GRAPHS, left=LEFT))

    def versions(self, model: type[Model]) -> list[Version]:
        """Return the versions of a model's graph: at least the one of this process, which comes last."""
        label, own = str(model._meta.label_lower), fingerprints(state_field(model).declared)
        here, groups = fingerprint(own), self._groups(label)
        others = [
            Version(_names(workers), self._states.get(workers[0].pk, {}).get(label))
            for each, workers in groups.items()
            if each != here
        ]
        return [*sorted(others, key=attrgetter("workers")), Version(_names(groups.get(here, [])), own, here=True)]

    def knowing(self, model: type[Model]) -> dict[str, list[str]]:
        """Return the states of a model that only other processes know, each with the live workers that know it."""
        workers: dict[str, list[str]] = defaultdict(list)
        for version in self.versions(model)[:-1]:
            for name in version.names or ():
                if name not in graph_of(model).states:
                    workers[name] += version.workers
        return dict(workers)

    def _groups(self, label: str) -> dict[str, list[Worker]]:
        """Return the workers that serve a model by the fingerprint of its graph."""
        groups: dict[str, list[Worker]] = defaultdict(list)
        for worker in self.workers:
            fingerprint_of_worker = _graphs_of(worker).get(label)
            if fingerprint_of_worker is not None and worker.serves(label):
                groups[fingerprint_of_worker].append(worker)
        return groups

    @cached_property
    def _states(self) -> dict[str, dict[str, States]]:
        """The states that workers publish, by worker and model; one worker is read for each set of graphs."""
        alike: dict[tuple[tuple[str, str], ...], list[Worker]] = defaultdict(list)
        for worker in self.workers:
            alike[tuple(sorted(_graphs_of(worker).items()))].append(worker)
        first = {same[0].pk: same for same in alike.values()}
        rows = Worker.objects.using(self.using).filter(pk__in=list(first))
        states_of: dict[str, dict[str, States]] = {}
        for pk, published in rows.values_list("pk", F("published__stator__states")):
            states: dict[str, States] = {}
            if isinstance(published, dict):
                states = {label: _texts(each) for label, each in published.items()}
            states_of |= {worker.pk: states for worker in first[pk]}
        return states_of


def compared(versions: Collection[Version], what: str, how: str = "") -> str:
    """Return a sentence on the versions that run: that there are several, what follows, and who knows what; "" for one.

    ``what``: as in "2 versions of its graph run"; ``how``: as in "new differs in options or transitions".
    """
    running = [version for version in versions if version.processes]
    if len(running) < 2:
        return ""
    published = [version.names for version in running if version.names is not None]
    common = set(published[0]).intersection(*published[1:]) if published else set()
    some = {name for names in published for name in names} - common
    # Those that know something come first: the others lack it.
    by_names = sorted(running, key=lambda version: version.names is None or not some.intersection(version.names))
    none = "that" if len(some) == 1 else "none of these"
    parts = [f"{listed(version.processes)}{_known(version, some, none)}" for version in by_names]
    effect = "so a process leaves alone what only others know" if some else "so objects are treated by either"
    if changed := sorted(name for name in common if len({names[name] for names in published}) > 1):
        parts.append(f"{listed(changed)} differ{'s' if len(changed) == 1 else ''} {how}".rstrip())
    return f"{len(running)} {what}, {effect}: {'; '.join(parts)}."


def _known(version: Version, some: set[str], none: str) -> str:
    """Say which names a version has that not all have; ``none``: what it does not know if it has none of them."""
    if version.names is None or not some:
        return ""
    alone = len(version.processes) == 1
    if known := sorted(some & set(version.names)):
        return f" {'knows' if alone else 'know'} {listed(known)}"
    return f" {'does' if alone else 'do'} not" if none == "that" else f" {'knows' if alone else 'know'} {none}"


def name_of(worker: Worker) -> str:
    """Return a worker by its host and process."""
    return f"{worker.host}/{worker.pid}"


def _names(workers: Iterable[Worker]) -> tuple[str, ...]:
    return tuple(sorted(map(name_of, workers)))


def _graphs_of(worker: Worker) -> dict[str, str]:
    return _texts(getattr(worker, "graphs", None))


def _texts(value: object) -> dict[str, str]:
    """Return published values as texts by name, without values of an unknown form."""
    return {name: each for name, each in value.items() if isinstance(each, str)} if isinstance(value, dict) else {}
