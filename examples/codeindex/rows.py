"""The rows of a directory at one time, and the difference to another time."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from examples.codeindex.content import Fingerprint
from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile


@dataclass(frozen=True, slots=True)
class Row:
    """A row and the file as it was read. `version`: the number of moves."""

    pk: Any
    state: str
    version: int
    fingerprint: Fingerprint

    @property
    def at_rest(self) -> bool:
        """Whether workers do not move it on."""
        return Graph.states[self.state] not in Graph.automatic_states

    @property
    def vanished(self) -> bool:
        """Whether its file is known to be gone."""
        return self.state in (Graph.vanished, Graph.forgotten)

    @property
    def forgotten(self) -> bool:
        """Whether nothing but the row is left of its file."""
        return self.state == Graph.forgotten


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run, from the rows before and after it.

    `files`: rows whose file exists. `moved`: rows that were added, moved or deleted. `failed`: moved rows that are
    broken now. `unfinished`: rows that are not at rest.
    """

    states: Counter[str]
    files: int
    moved: int
    failed: int
    unfinished: int


def rows_of(root: str) -> dict[str, Row]:
    """Return all rows of a root by path, in one query."""
    columns = ("path", "pk", "state", "state_version", "size", "mtime_ns")
    return {
        path: Row(pk, str(state), version, Fingerprint(size, mtime_ns))
        for path, pk, state, version, size, mtime_ns in SourceFile.objects.filter(root=root).values_list(*columns)
    }


def compare(before: dict[str, Row], after: dict[str, Row]) -> Outcome:
    """Return the outcome of a run from the rows before and after it."""
    moved = {path for path in {*before, *after} if _moved(before.get(path), after.get(path))}
    return Outcome(
        states=Counter(row.state for row in after.values()),
        files=sum(not row.vanished for row in after.values()),
        moved=len(moved),
        failed=sum(after[path].state == Graph.broken for path in moved if path in after),
        unfinished=sum(not row.at_rest for row in after.values()),
    )


def _moved(before: Row | None, after: Row | None) -> bool:
    if after is None:  # Rows that were forgotten already are deleted later, which does not count as a move.
        return before is not None and not before.forgotten
    return before is None or before.version != after.version
