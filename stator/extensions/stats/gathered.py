"""Statistics that are written once a second, because each write is a transaction over several servers."""

import threading
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from django.db import DatabaseError, connections

from stator.db.retry import is_passing
from stator.extensions.stats.models import Stats
from stator.rows.stay import Stay
from stator.scopes import entering
from stator.worker.parts import WorkerPart

if TYPE_CHECKING:
    from stator.worker.worker import Worker

# Seconds between writes, and until a thread writes what nobody else has.
WRITTEN_EVERY = 1.0

# Seconds that the end of a worker waits for the last ones.
AT_THE_END = 2.0


class CountedEdge(NamedTuple):
    """Which statistics: of a model on a database and a path, from one state to another."""

    alias: str
    path: str
    label: str
    source: str
    to: str


class Count:
    """How many attempts ended, and how long their objects had been in the state that they left."""

    __slots__ = ("failed", "handled", "longest", "seconds", "shard")

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.handled = self.failed = 0
        self.seconds = self.longest = 0.0

    def add(self, handled: int, failed: int, stays: Iterable[Stay]) -> None:
        """Add attempts."""
        self.handled += handled
        self.failed += failed
        for stay in stays:
            self.seconds += stay.seconds
            self.longest = max(self.longest, stay.longest)


class UnwrittenStats:
    """The statistics of this process that are not written yet; a process that is killed loses those of a second."""

    def __init__(self) -> None:
        self._counts: dict[CountedEdge, Count] = {}
        self._lock = threading.Lock()
        self._written = 0.0
        self._timer: threading.Timer | None = None

    def add(self, edge: CountedEdge, *, shard: int, handled: int, failed: int, stays: Iterable[Stay]) -> None:
        """Add attempts; write all that there is if a second has passed. Call it outside of transactions."""
        with self._lock:
            self._counts.setdefault(edge, Count(shard)).add(handled, failed, stays)
            is_due = monotonic() - self._written >= WRITTEN_EVERY
            if not is_due and self._timer is None:
                self._timer = self._begun()
        if is_due:
            self.write()

    def write(self) -> None:
        """Write what there is; what a database does not take now is kept for the next time."""
        with self._lock:
            counts, self._counts = self._counts, {}
            self._written = monotonic()
        for edge, count in counts.items():
            try:
                with entering(edge.path):
                    Stats.add(
                        edge.alias, edge.label, edge.source, edge.to, shard=count.shard, handled=count.handled,
                        failed=count.failed, stays=[Stay(count.seconds, count.longest)],
                    )  # fmt: skip
            except DatabaseError as error:
                if not is_passing(error):
                    raise
                with self._lock:
                    again = self._counts.setdefault(edge, Count(count.shard))
                    again.add(count.handled, count.failed, [Stay(count.seconds, count.longest)])

    def forget(self) -> None:
        """Drop what is not written, whose database is gone."""
        with self._lock:
            self._counts.clear()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def finish(self) -> None:
        """Write the last ones, in a thread: this one may run an event loop."""
        last = threading.Thread(target=self._write_rest, name="stator-counts", daemon=True)
        last.start()
        last.join(AT_THE_END)

    def _write_rest(self) -> None:
        try:
            self.write()
        finally:
            connections.close_all()

    def _look(self) -> None:
        """Write what nobody else has written, or look again: whoever adds something has a connection."""
        with self._lock:
            is_written = not self._counts
            is_due = monotonic() - self._written >= WRITTEN_EVERY
            self._timer = None if is_written or is_due else self._begun()
        if is_due and not is_written:
            self._write_rest()

    def _begun(self) -> threading.Timer:
        timer = threading.Timer(WRITTEN_EVERY, self._look)
        timer.daemon = True
        timer.start()
        return timer


GATHERED = UnwrittenStats()


def parts(worker: "Worker") -> list[WorkerPart]:
    """Return the end of a worker, which writes what is left."""
    return [WorkerPart(stop=GATHERED.finish)]
