"""The reconciliation of the rows with the disk: new, changed and vanished files."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from examples.codeindex.content import Fingerprint
from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile
from examples.codeindex.rows import Row, rows_of
from examples.codeindex.scan import Scan
from stator.graph import State

BATCH_SIZE = 500


def reconcile(root: str, scan: Scan) -> dict[str, Row]:
    """Add rows for new files, and move the rows of files that changed or vanished; return the rows as they were."""
    rows = rows_of(root)
    _register(root, {path: seen for path, seen in scan.files.items() if path not in rows})
    _move(_changed(rows, scan), Graph.found, "the file changed")
    _move(_vanished(rows, scan), Graph.vanished, "the file vanished")
    return rows


def _register(root: str, files: dict[str, Fingerprint]) -> None:
    # Another command may register the same files at the same time.
    SourceFile.objects.bulk_create(
        [SourceFile(root=root, path=path, size=seen.size, mtime_ns=seen.mtime_ns) for path, seen in files.items()],
        batch_size=BATCH_SIZE,
        ignore_conflicts=True,
    )


def _changed(rows: dict[str, Row], scan: Scan) -> Iterator[Any]:
    for path, row in rows.items():
        if path in scan.files and (row.forgotten or row.fingerprint != scan.files[path]):
            yield row.pk


def _vanished(rows: dict[str, Row], scan: Scan) -> Iterator[Any]:
    for path, row in rows.items():
        if path not in scan.files and scan.covers(path) and not row.vanished:
            yield row.pk


def _move(pks: Iterable[Any], state: State, reason: str) -> None:
    remaining = iter(pks)
    while batch := list(islice(remaining, BATCH_SIZE)):
        files = SourceFile.objects.filter(pk__in=batch)
        SourceFile.transition_perform_queryset(files, state, actor="codeindex", reason=reason)
