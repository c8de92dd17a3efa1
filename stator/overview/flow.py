"""Flow over time: moves on each edge in the last hour, and numbers of handled and queued objects."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Aggregate, F, Max, Model, Q, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncHour
from django.db.models.functions.datetime import TruncBase

from stator.overview.charts import Point
from stator.rows.reports import Event
from stator.rows.statistics import Depth, Stats

HOURS, DAYS, MINUTES = 24, 30, 60
HOUR, DAY, MONTH = "hour", "day", "month"
PERIODS = (HOUR, DAY, MONTH)

# Minutes after which a sample of the queue is out of date; workers write one a minute.
RECENT = 5

# Moves by events that are counted, of all models.
MAX_EVENTS = 10_000


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
    _read_edges(using, found, now)
    _read_events(using, found, now)
    _read_minutes(using, found, now, MINUTES if period == HOUR else RECENT)
    by_day = period == MONTH
    starts = _starts(now, by_day)
    # The days of the zone in which the times are shown.
    trunc = partial(TruncDay if by_day else TruncHour, tzinfo=now.tzinfo)
    own = {"model_label__in": list(found)}
    counted = _by_period(
        Stats.objects.using(using).filter(hour__gte=starts[0], **own), trunc("hour"), _COUNTED if by_day else _ENDED
    )
    depths = Depth.objects.using(using).filter(minute__gte=starts[0], **own)
    queued = {} if period == HOUR else _by_period(depths, trunc("minute"), _QUEUED)
    told = [(start, f"{start:%d %b}" if by_day else f"{start:%H}:00") for start in starts]
    for label, flow in found.items():
        for start, when in told:
            handled, failed, *outcomes = counted.get((label, start), (0, 0))
            flow.handled.append(Point(when, handled, failed))
            if outcomes:
                [stayed] = outcomes
                flow.stayed += stayed
                flow.moved += handled - failed - stayed
            if period != HOUR:
                flow.queued.append(Point(when, queued.get((label, start), (0,))[0]))
    return found


_COUNTED = {"all_handled": Sum("handled"), "all_failed": Sum("failed")}
_ENDED = _COUNTED | {"all_stayed": Sum(F("handled") - F("failed"), filter=Q(to=""))}
_QUEUED = {"most_queued": Max("queued")}


def _read_edges(using: str, found: dict[str, Flow], now: datetime) -> None:
    """Add up the last sixty minutes: this hour, and the missing share of the hour before."""
    this = now.replace(minute=0, second=0, microsecond=0)
    share = 1.0 - (now - this).total_seconds() / 3600
    rows = Stats.objects.using(using).filter(model_label__in=list(found), hour__gte=this - timedelta(hours=1))
    sums = rows.order_by().values_list("model_label", "hour", "source", "to").annotate(**_COUNTED)
    for label, hour, source, to, handled, failed in sums:
        part = 1.0 if hour >= this else share
        if to:
            found[label].edges[source, to] += part * handled
        found[label].failures[source] += part * failed


def _read_events(using: str, found: dict[str, Flow], now: datetime) -> None:
    """Add the moves by events in the last sixty minutes, which are no attempts."""
    sent = Event.objects.using(using).filter(at__gte=now - timedelta(hours=1), model_label__in=list(found))
    moves = sent.exclude(to="").order_by("-at").values_list("model_label", "source", "to")[:MAX_EVENTS]
    for (label, source, to), count in Counter(moves).items():
        found[label].edges[source, to] += count


def _read_minutes(using: str, found: dict[str, Flow], now: datetime, minutes: int) -> None:
    """Read the samples of the last minutes; for a whole hour, also as points."""
    this = now.replace(second=0, microsecond=0)
    starts = [this - timedelta(minutes=back) for back in range(minutes - 1, -1, -1)]
    rows = Depth.objects.using(using).filter(minute__gte=starts[0], model_label__in=list(found)).order_by("minute")
    samples = {(label, minute): rest for label, minute, *rest in rows.values_list(*_SAMPLE)}
    for start in starts:
        for label, flow in found.items():
            queued, oldest = samples.get((label, start), (0, 0.0))
            if (label, start) in samples:
                flow.latest = Point(f"{start:%H:%M}", queued)
            if minutes == MINUTES:
                flow.queued.append(Point(f"{start:%H:%M}", queued))
                flow.waits.append(Point(f"{start:%H:%M}", round(oldest)))


_SAMPLE = ("model_label", "minute", "queued", "oldest")


def _starts(now: datetime, by_day: bool) -> list[datetime]:
    if by_day:
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return [(today - timedelta(days=back)).replace(hour=0) for back in range(DAYS - 1, -1, -1)]
    this = now.replace(minute=0, second=0, microsecond=0)
    return [this - timedelta(hours=back) for back in range(HOURS - 1, -1, -1)]


def _by_period(
    rows: QuerySet[Model], period: TruncBase, sums: Mapping[str, Aggregate]
) -> dict[tuple[str, datetime], tuple[int, ...]]:
    found = rows.order_by().annotate(period=period).values_list("model_label", "period").annotate(**sums)
    return {(label, start): tuple(number or 0 for number in numbers) for label, start, *numbers in found}
