"""All rows of a directory at one moment, and what has become of them at a later one."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from examples.codeindex.content import Fingerprint
from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile


@dataclass(frozen=True, slots=True)
class Row:
    """What a row says of its file. `version` counts its moves."""

    pk: Any
    state: str
    version: int
    fingerprint: Fingerprint

    @property
    def at_rest(self) -> bool:
        """Whether no worker will move it."""
        return Graph.states[self.state] not in Graph.automatic_states

    @property
    def vanished(self) -> bool:
        """Whether its file is known to be gone."""
        return self.state in (Graph.vanished, Graph.forgotten)

    @property
    def forgotten(self) -> bool:
        """Whether nothing is left of its file but the row itself."""
        return self.state == Graph.forgotten


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, by comparison of the rows before and after it.

    `files` are the rows whose file exists, `moved` those that were registered, changed their state or were deleted
    since, `failed` those of the moved that are broken now, `unfinished` those that did not come to rest.
    """

    states: Counter[str]
    files: int
    moved: int
    failed: int
    unfinished: int


def rows_of(root: str) -> dict[str, Row]:
    """Every row below a root by its path, in one query."""
    columns = ("path", "pk", "state", "state_version", "size", "mtime_ns")
    return {
        path: Row(pk, str(state), version, Fingerprint(size, mtime_ns))
        for path, pk, state, version, size, mtime_ns in SourceFile.objects.filter(root=root).values_list(*columns)
    }


def compare(before: dict[str, Row], after: dict[str, Row]) -> Outcome:
    """The outcome of whatever happened between two looks at the rows."""
    moved = {path for path in {*before, *after} if _moved(before.get(path), after.get(path))}
    return Outcome(
        states=Counter(row.state for row in after.values()),
        files=sum(not row.vanished for row in after.values()),
        moved=len(moved),
        failed=sum(after[path].state == Graph.broken for path in moved if path in after),
        unfinished=sum(not row.at_rest for row in after.values()),
    )


def _moved(before: Row | None, after: Row | None) -> bool:
    if after is None:  # A row that was forgotten before is deleted in its time; that is no news.
        return before is not None and not before.forgotten
    return before is None or before.version != after.version
