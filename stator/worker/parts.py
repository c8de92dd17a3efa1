"""The parts of a worker beside its loops, on one list: threads, servers, and what is looked after now and then."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from stator.db.interface import Ended
from stator.worker.alone import Alone


def _nothing() -> None:
    return None


class Monitor(Protocol):
    """Who is told what a worker does, on its loop."""

    def ended(self, ended: Iterable[Ended]) -> None:
        """Take attempts that have ended, before their outcomes are written; if they wrote these, after it."""

    def took(self, what: str, seconds: float) -> None:
        """Take how long a claim or the record of a batch took; ``what``: ``"claim"`` or ``"record"``."""


class Shown(Protocol):
    """What the thread that renews leases shows of the worker."""

    def show(self) -> None:
        """Show it anew, unless that was done lately; called with each beat."""

    def leave(self) -> None:
        """Show that the worker has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPart:
    """One part: how it starts and stops, and what it does each time the loop turns to the parts (``beat``).

    ``alone``: attempts the objects that lost many leases, in place of the worker itself.
    ``monitor``: is told what the worker does.
    ``shown``: shows the worker to others, in the thread of the heartbeat.
    """

    start: Callable[[], object] = _nothing
    stop: Callable[[], object] = _nothing
    beat: Callable[[], object] = _nothing
    alone: Alone | None = None
    monitor: Monitor | None = None
    shown: Shown | None = None


class WorkerParts:
    """All parts of a worker, in the order of their start; they stop in the reverse order."""

    def __init__(self, parts: Sequence[WorkerPart]) -> None:
        self._parts = tuple(parts)
        # A part without a beat costs nothing.
        self._beats = [part.beat for part in parts if part.beat is not _nothing]
        self._started = ExitStack()

    def start(self) -> None:
        """Start each part; if one fails, stop those before it and raise its error."""
        with ExitStack() as started:
            for part in self._parts:
                part.start()
                started.callback(part.stop)
            self._started = started.pop_all()

    def stop(self) -> None:
        """Stop each part, also if another fails to; then raise the error of the last that did."""
        self._started.close()

    def beat(self) -> None:
        """Let each part do what it does at a turn of the loop."""
        for beat in self._beats:
            beat()
