"""The progress of a worker: how many files are in each state, how fast, for how long."""

import shutil
import time
from collections.abc import Mapping
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from django.db import DatabaseError, connection

from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile

REFRESH_INTERVAL = 0.25
LINE_INTERVAL = 2.0


class Progress:
    """Shows the states of a directory's files while a block runs.

    On a terminal it rewrites one line; elsewhere it writes a line every two seconds. A thread of its own reads the
    counts from the database, so they include the work of other workers.
    """

    def __init__(self, root: str, stream: Any) -> None:
        self.root = root
        self.stream = stream
        self.live = stream.isatty()
        self.started = time.monotonic()
        self.resting_at_start = 0
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="codeindex-progress", daemon=True)

    def __enter__(self) -> Self:
        self.resting_at_start = _resting(self._counts())
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if self.live:
            self.stream.write("\r\x1b[K", ending="")

    def _watch(self) -> None:
        try:
            while not self._ended.wait(REFRESH_INTERVAL if self.live else LINE_INTERVAL):
                self._show()
        finally:
            connection.close()

    def _show(self) -> None:
        try:
            line = self._line(self._counts())
        except DatabaseError:
            return  # The worker reports this error; the next line is written later.
        if self.live:
            self.stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K", ending="")
        else:
            self.stream.write(line)
        self.stream.flush()

    def _counts(self) -> dict[str, int]:
        return SourceFile.stator.filter(root=self.root).counts()

    def _line(self, counts: Mapping[str, int]) -> str:
        seconds = time.monotonic() - self.started
        rate = (_resting(counts) - self.resting_at_start) / seconds
        return f"{in_words(counts)} | {rate:,.0f} files/s | {seconds:.1f} s"


def in_words(counts: Mapping[str, int]) -> str:
    """Return the counts as text in the order of the graph, without states that have no files."""
    present = (f"{name} {counts[name]:,}" for name in Graph.states if counts.get(name))
    return "  ".join(present) or "no files"


def _resting(counts: Mapping[str, int]) -> int:
    return sum(counts[state.name] for state in Graph.states.values() if not state.automatic)
