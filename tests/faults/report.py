"""The table at the end of a long run of faults: what was done to the workers, and what became of the work."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tests.faults.events import History, Kind

HEADINGS = ("fault", "times", "leases lost", "p50", "p99", "longest")


@dataclass
class Report:
    """What happened in one run. ``faults``: when each began, and its kind, in order; ``refused``: late writes."""

    load: str
    histories: list[History]
    faults: list[tuple[datetime, str]] = field(default_factory=list)
    refused: int = 0
    settled: frozenset[str] = frozenset({"done"})

    @property
    def lost(self) -> int:
        """Objects that are there and did not reach the end."""
        rows = [events[-1].new for history in self.histories for events in history.rows().values()]
        return sum(row is not None and row.state not in self.settled for row in rows)

    @property
    def doubled(self) -> int:
        """Moves out of a state that somebody else had moved the object out of already."""
        moves: Counter[tuple[int, str, int]] = Counter()
        for number, history in enumerate(self.histories):
            for event, kind in zip(history.events, history.kinds(), strict=True):
                if kind is Kind.MOVE and event.old is not None:
                    moves[number, event.pk, event.old.version] += 1
        return sum(times - 1 for times in moves.values())

    def recoveries(self) -> dict[str, list[float]]:
        """For each kind of fault the seconds from the end of each lease lost to it to the next claim, in order.

        A lease is lost to the latest fault that began before the lease was reaped.
        """
        begun = [at for at, _ in self.faults]
        found: dict[str, list[float]] = defaultdict(list)
        for history in self.histories:
            for reaped, expired, claimed in _reclaims(history):
                number = bisect_right(begun, reaped)
                kind = self.faults[number - 1][1] if number else "none"
                found[kind].append((claimed - expired).total_seconds())
        return {kind: sorted(waits) for kind, waits in found.items()}

    def lines(self) -> list[str]:
        """The table."""
        rows = [event.pk for history in self.histories for event in history.events if event.old is None]
        attempts = sum(kind is Kind.CLAIM for history in self.histories for kind in history.kinds())
        figures = {
            "load": self.load, "faults": f"{len(self.faults):,}", "objects": f"{len(rows):,}",
            "attempts": f"{attempts:,}", "late writes refused": f"{self.refused:,}", "lost": f"{self.lost:,}",
            "done twice": f"{self.doubled:,}",
        }  # fmt: skip
        waits = self.recoveries()
        table = [HEADINGS]
        for kind, times in sorted(Counter(kind for _, kind in self.faults).items()):
            table.append((kind, f"{times:,}", f"{len(waits.get(kind, ())):,}", *_percentiles(waits.get(kind, []))))
        return [
            *(f"{name:20} {value}" for name, value in figures.items()),
            "",
            "Seconds from the end of a lost lease to the next claim of its object, by the fault before:",
            "",
            *("  ".join(f"{cell:>11}" if place else f"{cell:14}" for place, cell in enumerate(row)) for row in table),
        ]


def _reclaims(history: History) -> Iterable[tuple[datetime, datetime, datetime]]:
    """For each lost lease when it was reaped, when it had ended, and when its object was claimed again."""
    waiting: dict[str, tuple[datetime, datetime]] = {}
    for event, kind in zip(history.events, history.kinds(), strict=True):
        if kind is Kind.REAP and event.old is not None and event.old.locked_until is not None:
            waiting[event.pk] = event.at, event.old.locked_until
        elif kind is Kind.CLAIM and event.pk in waiting:
            yield *waiting.pop(event.pk), event.at


def _percentiles(waits: list[float]) -> tuple[str, str, str]:
    if not waits:
        return ("-", "-", "-")
    return tuple(f"{waits[round((len(waits) - 1) * part)]:.2f}" for part in (0.5, 0.99, 1.0))  # type: ignore[return-value]
