"""Time in states, where a history is kept: median, 95th percentile, the part that took too long, and the wait for the
first attempt.
"""

from dataclasses import dataclass
from math import ceil

from stator.graph.durations import span

# How many of the newest events of all models together are read.
LATEST = 5000

STARTED = ("half started within", "95 % started within")
HEADS = ("state", "moves", "half within", "95 % within", "longer than expected", *STARTED)


@dataclass(frozen=True, slots=True)
class Stays:
    """The moves that left one state: half within ``p50`` seconds, 95 % within ``p95``.

    ``burn``: the part, from 0 to 1, that took longer than ``expected``; None if the state expects nothing. ``start50``,
    ``start95``: seconds until a worker began the attempt, of objects that were ready at once and moved by their first
    attempt; None if there are none.
    """

    state: str
    moves: int
    p50: float
    p95: float
    expected: float | None = None
    burn: float | None = None
    start50: float | None = None
    start95: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns under ``HEADS``."""
        starts = ["" if start is None else _within(start) for start in (self.start50, self.start95)]
        return self.state, f"{self.moves:,}", _within(self.p50), _within(self.p95), self.burned, *starts

    @property
    def burned(self) -> str:
        """The part that took too long as text; empty without an expectation."""
        if self.burn is None or self.expected is None:
            return ""
        return f"{_share(self.burn)} (more than {_within(self.expected)})"


def moves(found: list[Stays]) -> int:
    """Return the number of moves in these numbers."""
    return sum(one.moves for one in found)


def _within(seconds: float) -> str:
    """Return a duration as text, rounded up."""
    thousandths = max(1, ceil(seconds * 1000))
    return f"{thousandths} ms" if thousandths < 1000 else span(ceil(seconds))


def _share(part: float) -> str:
    if part in (0, 1):
        return "all" if part else "none"
    percent = round(100 * part)
    return "<1 %" if percent < 1 else ">99 %" if percent > 99 else f"{percent} %"
