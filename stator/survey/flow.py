"""Figures over time: moves, handled and queued objects by period, the last hour by minute, and time in states."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil

from stator.graph.durations import span
from stator.rows.readings import read
from stator.survey.numbers import WorkerStatus

HOUR, DAY, MONTH = "hour", "day", "month"
PERIODS = (HOUR, DAY, MONTH)


@dataclass(frozen=True, slots=True)
class Point:
    """One period: its start as text, the number of events, and how many of them were bad."""

    when: str
    count: int
    bad: int = 0


@dataclass(slots=True)
class Flow:
    """A model over time. ``edges``: moves in the last hour; ``failures``: errors in the last hour, by state.

    ``moved`` and ``stayed``: the numbers of handled attempts without an error that moved their object, and that did
    not; not counted for a month, which would take too long.
    ``waits``: seconds that the first ready object had waited, for the last hour only. ``latest``: the latest sample of
    the queue, if there is a recent one.
    """

    edges: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    failures: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    handled: list[Point] = field(default_factory=list)
    moved: int = 0
    stayed: int = 0
    queued: list[Point] = field(default_factory=list)
    waits: list[Point] = field(default_factory=list)
    latest: Point | None = None


def flows(using: str, labels: Iterable[str], now: datetime, period: str = DAY) -> dict[str, Flow]:
    """Return the flow of each model until ``now``, a time in the current time zone; at most five statements.

    It covers the hours of the last day, the days of the last month, or for the queue the minutes of the last hour:
    attempts are counted by the hour.
    """
    by_label = {label: Flow() for label in labels}
    # Those that are no attempts.
    read("moves", using, by_label, now, otherwise=None)
    read("flows", using, by_label, now, period, otherwise=None)
    return by_label


MINUTES = 60

# Workers sample each model in each scheduling pass. If more minutes lie between two samples, none was at work.
GAP = 5

Values = list[float | None]


@dataclass(frozen=True, slots=True)
class MinuteSample:
    """A model in one minute: moves a second if that is known, seconds of the longest wait, failing objects."""

    moves: float | None
    wait: float
    failing: int


class Minutes(list[MinuteSample | None]):
    """The last sixty minutes of a model; ``moved``: its moves since they began, as they were recorded."""

    moved: int = 0


def moves_in(models: Iterable[Minutes]) -> Values:
    """Return the moves a second of all models together."""
    return [sum(rates) if (rates := [one.moves for one in known if one.moves is not None]) else None
            for known in _by_minute(models)]  # fmt: skip


def waits_in(models: Iterable[Minutes]) -> Values:
    """Return the longest wait of all models, in seconds."""
    return [max((one.wait for one in known), default=None) for known in _by_minute(models)]


def failing_in(models: Iterable[Minutes]) -> Values:
    """Return the number of failing objects of all models."""
    return [sum(one.failing for one in known) if known else None for known in _by_minute(models)]


def _by_minute(models: Iterable[Minutes]) -> Iterator[list[MinuteSample]]:
    for each in zip(*models, strict=True):
        yield [minute for minute in each if minute is not None]


def alive_in(workers: Iterable[WorkerStatus]) -> Values:
    """Return how many workers were alive at the end of each of the last sixty minutes, now included."""
    # A process has a row in each of its databases. An ended worker's life ended with its last heartbeat.
    ended = {one.worker.pk: (0.0 if one.status == "alive" else one.heard, one.since) for one in workers}.values()
    backs = range(60 * (MINUTES - 1), -1, -60)
    return [float(sum(end <= back < end + up for end, up in ended)) for back in backs]


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


def moves(stays: list[Stays]) -> int:
    """Return the number of moves in these numbers."""
    return sum(one.moves for one in stays)


def _within(seconds: float) -> str:
    """Return a duration as text, rounded up."""
    thousandths = max(1, ceil(seconds * 1000))
    return f"{thousandths} ms" if thousandths < 1000 else span(ceil(seconds))


def _share(part: float) -> str:
    if part in (0, 1):
        return "all" if part else "none"
    percent = round(100 * part)
    return "<1 %" if percent < 1 else ">99 %" if percent > 99 else f"{percent} %"
