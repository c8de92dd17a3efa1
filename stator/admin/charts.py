"""Bar charts and lines over time as numbers for an SVG, without markup.

Pages of other apps include ``stator/admin/overview_chart.html`` with a chart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from stator.admin.access import Pages
from stator.models import StatorModel
from stator.survey.flow import Flow, Point
from stator.survey.numbers import Depths

WIDTH, HEIGHT = 320, 88
# Lower end of the bars; the times are below it.
FLOOR = 70
GAP = 2

# What extensions draw of a model with its numbers: above its charts.
DRAWN: list[Callable[[type[StatorModel], Depths, Flow, Pages], SafeString]] = []


@dataclass(frozen=True, slots=True)
class Bar:
    """One period as a bar; ``bad`` is the height of its lower part."""

    point: Point
    x: float
    width: float
    height: float
    bad: float

    @property
    def text(self) -> str:
        """The text of the bar."""
        bad = f", {self.point.bad:,} failed" if self.point.bad else ""
        return f"{self.point.when}: {self.point.count:,}{bad}"

    def path(self, height: float) -> str:
        """Return the path of the part of the bar that reaches from the floor up to ``height``."""
        return f"M{self.x:g} {FLOOR}v{-height:g}h{self.width:g}v{height:g}z"


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of equal width; ``most`` is the value of the highest bar."""

    bars: tuple[Bar, ...]
    most: int
    total: int
    bad: int
    width: int = WIDTH
    height: int = HEIGHT
    floor: int = FLOOR

    @property
    def path(self) -> str:
        """All bars as one path: a page has hundreds of them."""
        return "".join(bar.path(bar.height) for bar in self.bars if bar.height)

    @property
    def bad_path(self) -> str:
        """The lower parts of all bars as one path."""
        return "".join(bar.path(bar.bad) for bar in self.bars if bar.bad)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Each period as a path of the chart's full height, with the text of its bar."""
        return [(bar.path(FLOOR), bar.text) for bar in self.bars]

    @property
    def last(self) -> Point | None:
        """The latest period."""
        return self.bars[-1].point if self.bars else None

    @property
    def figures(self) -> dict[str, str]:
        """The numbers of the chart, formatted for people."""
        numbers = {"most": self.most, "total": self.total, "bad": self.bad, "latest": self.latest}
        return {name: f"{number:,}" for name, number in numbers.items()}

    @property
    def latest(self) -> int:
        """The value of the last bar."""
        return self.bars[-1].point.count if self.bars else 0


def chart(points: Sequence[Point]) -> Chart:
    """Return a chart of the points whose highest bar uses all the room."""
    most = max((point.count for point in points), default=0)
    step = WIDTH / max(1, len(points))
    bars = []
    for number, point in enumerate(points):
        height = _height(point.count, most)
        bad = min(height, _height(point.bad, most))
        bars.append(Bar(point, round(number * step, 1), round(step - GAP, 1), height, bad))
    total, bad = (sum(getattr(point, name) for point in points) for name in ("count", "bad"))
    return Chart(tuple(bars), most, total, bad)


# The drawn size of a line; the page stretches it.
LINE_WIDTH, LINE_HEIGHT = 118, 24


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A line over time, with gaps where nothing is known. ``area``: the same down to the floor."""

    path: str = ""
    area: str = ""
    most: float = 0.0


def sparkline(values: Sequence[float | None]) -> Sparkline:
    """Return the line of these values, from 0 to the highest of them."""
    most = max((value for value in values if value is not None), default=0.0)
    step = LINE_WIDTH / max(1, len(values) - 1)
    runs: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            runs.append([])
            continue
        height = value / most * (LINE_HEIGHT - 2) if most else 0.0
        runs[-1].append(f"{number * step:.0f},{LINE_HEIGHT - 1 - height:.1f}")
    drawn = [run for run in runs if run]
    return Sparkline(
        # A single point is drawn too.
        "".join(f"M{run[0]}L{' '.join(run)}" for run in drawn),
        "".join(f"M{run[0].partition(',')[0]},{LINE_HEIGHT}L{' '.join(run)}V{LINE_HEIGHT}z" for run in drawn),
        most,
    )


def _height(count: int, most: int) -> float:
    """Return the height of a bar; any value above 0 is visible."""
    return max(2.0, round(count / most * (FLOOR - 6), 1)) if count else 0.0
