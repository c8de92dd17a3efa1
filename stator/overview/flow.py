"""Flow over time: moves on each edge in the last hour, and handled and queued objects, where counted."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from stator.overview.charts import Point
from stator.rows.readings import read

HOUR, DAY, MONTH = "hour", "day", "month"
PERIODS = (HOUR, DAY, MONTH)


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
    found = {label: Flow() for label in labels}
    # Those that are no attempts.
    read("moves", using, found, now, otherwise=None)
    read("flows", using, found, now, period, otherwise=None)
    return found
