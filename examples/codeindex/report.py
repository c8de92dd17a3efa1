"""The report at the end of a run, for people and for programs."""

import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet, Sum

from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile, Symbol
from examples.codeindex.progress import in_words
from examples.codeindex.rows import Outcome
from examples.codeindex.scan import Scan
from examples.codeindex.text import printable

MAX_LISTED = 10


def json_line(outcome: Outcome, seconds: float) -> str:
    """Return the outcome for a program, as one line of JSON."""
    numbers: dict[str, Any] = {"files": outcome.files, "moved": outcome.moved, "failed": outcome.failed}
    return json.dumps(numbers | {"seconds": round(seconds, 3)})


def summary(root: str, outcome: Outcome, scan: Scan, seconds: float) -> Iterator[str]:
    """Yield the lines of the outcome for people."""
    files = SourceFile.objects.filter(root=root)
    lines = files.aggregate(total=Sum("line_count"))["total"] or 0
    symbols = Symbol.objects.filter(file__root=root).count()
    yield f"{outcome.files:,} files: {in_words(outcome.states)}"
    yield f"{symbols:,} symbols in {lines:,} lines"
    yield f"{outcome.moved:,} moved, {outcome.failed:,} of them broken, in {seconds:.1f} s"
    yield from _listed("Broken", _broken(files), outcome.states[Graph.broken.name])
    yield from _listed("Directories that could not be listed", scan.unlisted, len(scan.unlisted))
    yield from _listed("Names that cannot be stored", scan.unnameable, len(scan.unnameable))


def _broken(files: QuerySet[SourceFile]) -> list[str]:
    broken = files.filter(state=Graph.broken).order_by("path")[:MAX_LISTED]
    return [f"{file.path}: {file.error or 'failed too often'}" for file in broken]


def _listed(title: str, texts: list[str], total: int) -> Iterator[str]:
    """Yield a title, the first ten texts, and how many are left out."""
    if not total:
        return
    yield f"{title}: {total:,}"
    for text in texts[:MAX_LISTED]:
        yield f"  {printable(text)}"
    if total > MAX_LISTED:
        yield f"  ... and {total - MAX_LISTED:,} more"
