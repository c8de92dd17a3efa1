"""The flow of models over time, from samples and statistics."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Aggregate, F, Max, Model, Q, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncHour
from django.db.models.functions.datetime import TruncBase

from stator.extensions.stats.models import Depth, Stats
from stator.survey.flow import HOUR, MONTH, Flow, Point

HOURS, DAYS, MINUTES = 24, 30, 60

# Minutes after which a sample of the queue is out of date; workers write one a minute.
RECENT = 5


def read_flows(using: str, flows: dict[str, Flow], now: datetime, period: str) -> None:
    """Add what is counted of each model to its flow; at most four statements."""
    _read_edges(using, flows, now)
    _read_minutes(using, flows, now, MINUTES if period == HOUR else RECENT)
    by_day = period == MONTH
    starts = _starts(now, by_day)
    # The days of the zone in which the times are shown.
    trunc = partial(TruncDay if by_day else TruncHour, tzinfo=now.tzinfo)
    own = {"model_label__in": list(flows)}
    counted = _by_period(
        Stats.objects.using(using).filter(hour__gte=starts[0], **own), trunc("hour"), _COUNTED if by_day else _ENDED
    )
    depths = Depth.objects.using(using).filter(minute__gte=starts[0], **own)
    queued = {} if period == HOUR else _by_period(depths, trunc("minute"), _QUEUED)
    labels = [(start, f"{start:%d %b}" if by_day else f"{start:%H}:00") for start in starts]
    for label, flow in flows.items():
        for start, when in labels:
            handled, failed, *outcomes = counted.get((label, start), (0, 0))
            flow.handled.append(Point(when, handled, failed))
            if outcomes:
                [stayed] = outcomes
                flow.stayed += stayed
                flow.moved += handled - failed - stayed
            if period != HOUR:
                flow.queued.append(Point(when, queued.get((label, start), (0,))[0]))


_COUNTED = {"all_handled": Sum("handled"), "all_failed": Sum("failed")}
_ENDED = _COUNTED | {"all_stayed": Sum(F("handled") - F("failed"), filter=Q(to=""))}
_QUEUED = {"most_queued": Max("queued")}


def _read_edges(using: str, flows: dict[str, Flow], now: datetime) -> None:
    """Add up the last sixty minutes: this hour, and the missing share of the hour before."""
    this = now.replace(minute=0, second=0, microsecond=0)
    share = 1.0 - (now - this).total_seconds() / 3600
    rows = Stats.objects.using(using).filter(model_label__in=list(flows), hour__gte=this - timedelta(hours=1))
    sums = rows.order_by().values_list("model_label", "hour", "source", "to").annotate(**_COUNTED)
    for label, hour, source, to, handled, failed in sums:
        part = 1.0 if hour >= this else share
        if to:
            flows[label].edges[source, to] += part * handled
        flows[label].failures[source] += part * failed


def _read_minutes(using: str, flows: dict[str, Flow], now: datetime, minutes: int) -> None:
    """Read the samples of the last minutes; for a whole hour, also as points."""
    this = now.replace(second=0, microsecond=0)
    starts = [this - timedelta(minutes=back) for back in range(minutes - 1, -1, -1)]
    rows = Depth.objects.using(using).filter(minute__gte=starts[0], model_label__in=list(flows)).order_by("minute")
    samples = {(label, minute): rest for label, minute, *rest in rows.values_list(*_SAMPLE)}
    for start in starts:
        for label, flow in flows.items():
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
    sums_of = rows.order_by().annotate(period=period).values_list("model_label", "period").annotate(**sums)
    return {(label, start): tuple(number or 0 for number in numbers) for label, start, *numbers in sums_of}
