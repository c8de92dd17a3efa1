"""The last hour of models by minute, from samples and statistics."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from stator.extensions.stats.models import Depth, Stats
from stator.survey.flow import GAP, MINUTES, Minutes, MinuteSample

MINUTE = timedelta(minutes=1)


class DepthSample(NamedTuple):
    """What a worker stored of a model, in its columns of ``Depth``."""

    model_label: str
    minute: datetime
    oldest: float
    failing: int
    moved: int


def minutes_of(using: str, labels: Iterable[str], now: datetime) -> dict[str, Minutes]:
    """Return the last sixty whole minutes of each model, None where no worker sampled it; two statements.

    The number of moves needs no sample but one before: the statistics of an hour count each, and the last sample before
    the first minute says how many of its hour came earlier.

    Index ``stator_depth_minute``.
    """
    labels = list(labels)
    last = now.replace(second=0, microsecond=0) - MINUTE
    first = last - MINUTE * (MINUTES - 1)
    since = min(first - MINUTE * GAP, hour_of(first))
    rows = Depth.objects.using(using).filter(minute__range=(since, last), model_label__in=labels).order_by("minute")
    samples: dict[str, list[DepthSample]] = {label: [] for label in labels}
    for values in rows.values_list(*DepthSample._fields):
        samples[values[0]].append(DepthSample(*values))
    moves = Stats.moves(using, labels, hour_of(since))
    filled = {label: _filled(own, moves, first) for label, own in samples.items()}
    for label, own in samples.items():
        before = [one.moved for one in own if one.minute < first and hour_of(one.minute) == hour_of(first)]
        hours = sum(count for (of, hour), count in moves.items() if of == label and hour >= hour_of(first))
        filled[label].moved = max(0, hours - (before[-1] if before else 0))
    return filled


def _filled(samples: list[DepthSample], moves: dict[tuple[str, datetime], int], first: datetime) -> Minutes:
    filled = Minutes([None] * MINUTES)
    for number, minute in _known(samples, moves, first):
        if 0 <= number < MINUTES:
            filled[number] = minute
    return filled


def _known(
    samples: list[DepthSample], moves: dict[tuple[str, datetime], int], first: datetime
) -> Iterator[tuple[int, MinuteSample]]:
    """Yield each known minute with its number; the minutes between two samples are as the second one."""
    numbered = [(sample, _number(sample, first)) for sample in samples]
    for sample, here in numbered[:1]:
        yield here, MinuteSample(None, sample.oldest, sample.failing)
    for (before, last), (sample, here) in pairwise(numbered):
        gap = here - last
        if gap > GAP:
            yield here, MinuteSample(None, sample.oldest, sample.failing)
            continue
        moved = sample.moved - before.moved
        if hour_of(before.minute) != hour_of(sample.minute):
            # Counted anew from the hour on; how many followed the last sample of the hour before is known since.
            moved += moves.get((before.model_label, hour_of(before.minute)), before.moved)
        minute = MinuteSample(max(0, moved) / (60 * gap), sample.oldest, sample.failing)
        yield from ((number, minute) for number in range(here - gap + 1, here + 1))


def _number(sample: DepthSample, first: datetime) -> int:
    return round((sample.minute - first) / MINUTE)


def hour_of(moment: datetime) -> datetime:
    """Return the beginning of its hour, as statistics count it."""
    return moment.replace(minute=0, second=0, microsecond=0)
