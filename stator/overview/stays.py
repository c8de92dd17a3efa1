"""Time in states from the history of recent moves: median, 95th percentile, the part that took too long, and the wait
for the first attempt.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from stator.extensions.reports.models import History
from stator.graph import State
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows import columns
from stator.rows.meta import options_of

DAY = 86400.0

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


def stays(using: str, models: Iterable[type[StatorModel]]) -> dict[str, list[Stays]]:
    """Return, by the label of each model, the states that were left, in the order of the graph; at most one statement.

    It reads the newest ``LATEST`` events of the last day for all models together, so that the cost is bounded. Models
    without history are left out, because they store only manual actions. Index ``stator_history_at``.
    """
    kept = {model._meta.label_lower: model for model in models if options_of(model).history}
    found: dict[str, dict[str, _Left]] = defaultdict(lambda: defaultdict(_Left))
    for label, source, stay, took, attempts in _latest(using) if kept else ():
        if label in kept and stay is not None:
            left = found[label][source]
            left.stays.append(stay)
            if took is not None and attempts == 1:
                left.starts.append(max(0.0, stay - took))
    return {label: _of_model(kept[label].state_graph.states, left) for label, left in found.items()}


@dataclass(slots=True)
class _Left:
    """The moves out of one state: how long each object stayed, and how long it waited for its first attempt."""

    stays: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def moves(found: list[Stays]) -> int:
    """Return the number of moves in these numbers."""
    return sum(one.moves for one in found)


def _latest(using: str) -> Iterable[tuple[str, str, float | None, float | None, int]]:
    # All kinds are read and filtered here: in a day of errors the database would read them all to find few moves.
    events = History.objects.using(using).filter(at__gte=columns.after(-DAY)).order_by("-at")
    return events.values_list("model_label", "source", "stay", "duration", "attempts")[:LATEST]


def _of_model(states: Mapping[str, State], left: dict[str, _Left]) -> list[Stays]:
    # Includes states that are no longer in the graph.
    names = dict.fromkeys([*states, *sorted(left)])
    return [_of_state(name, states.get(name), left[name]) for name in names if name in left]


def _of_state(name: str, state: State | None, left: _Left) -> Stays:
    ordered = sorted(left.stays)
    # A state that is entered with a due time has another start.
    starts = sorted(left.starts) if state is not None and state.attempt_immediately else []
    count, expected = len(ordered), state.expect_within if state else None
    late = sum(seconds > expected for seconds in ordered) if expected else 0
    return Stays(
        name, count, _percentile(ordered, 50), _percentile(ordered, 95), expected, late / count if expected else None,
        *((_percentile(starts, 50), _percentile(starts, 95)) if starts else (None, None)),
    )  # fmt: skip


def _percentile(ordered: list[float], percent: int) -> float:
    """Return the smallest value that ``percent`` of the values do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def _within(seconds: float) -> str:
    """Return a duration as text, rounded up."""
    thousandths = max(1, ceil(seconds * 1000))
    return f"{thousandths} ms" if thousandths < 1000 else span(ceil(seconds))


def _share(part: float) -> str:
    if part in (0, 1):
        return "all" if part else "none"
    percent = round(100 * part)
    return "<1 %" if percent < 1 else ">99 %" if percent > 99 else f"{percent} %"
