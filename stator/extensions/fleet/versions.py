"""Versions of code in a fleet: the graphs that each live worker runs, compared with each other and with this process.

Workers publish the fingerprints of the graphs that they run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType

from django.db.models import F, Model

from stator.extensions.fleet.fingerprints import fingerprint, fingerprints
from stator.graph.graphs import StateGraph
from stator.rows.meta import graph_of
from stator.rows.state_column import state_field
from stator.rows.versions import States, Version
from stator.rows.workers import Worker

# The most characters of states that a worker publishes. Beyond that it publishes only the fingerprints of its graphs.
MAX_CHARACTERS = 60_000


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


@dataclass
class Fleet:
    """The live workers of a database, the latest first, with the ``graphs`` that each publishes.

    If these differ, a statement reads their states.
    """

    using: str
    workers: list[Worker]

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
