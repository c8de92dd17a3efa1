"""The last hour by minute: moves, waits and failing objects as workers sampled them, and the live workers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from stator.explain.survey import WorkerStatus
from stator.rows.statistics import Depth, Stats

MINUTES = 60

# Workers sample each model in each scheduling pass. If more minutes lie between two samples, none was at work.
GAP = 5

MINUTE = timedelta(minutes=1)

Values = list[float | None]


class DepthSample(NamedTuple):
    """What a worker stored of a model, in its columns of ``Depth``."""

    model_label: str
    minute: datetime
    oldest: float
    failing: int
    moved: int


@dataclass(frozen=True, slots=True)
class MinuteSample:
    """A model in one minute: moves a second if that is known, seconds of the longest wait, failing objects."""

    moves: float | None
    wait: float
    failing: int


class Minutes(list[MinuteSample | None]):
    """The last sixty minutes of a model; ``moved``: its moves since they began, as they were recorded."""

    moved: int = 0


def minutes_of(using: str, labels: Iterable[str], now: datetime) -> dict[str, Minutes]:
    """Return the last sixty whole minutes of each model, None where no worker sampled it; two statements.

    The number of moves needs no sample but one before: the statistics of an hour count each, and the last sample before
    the first minute says how many of its hour came earlier.

    Index ``stator_depth_minute``.
    """
    labels = list(labels)
    last = now.replace(second=0, microsecond=0) - MINUTE
    first = last - MINUTE * (MINUTES - 1)
    since = min(first - MINUTE * GAP, _hour(first))
    rows = Depth.objects.using(using).filter(minute__range=(since, last), model_label__in=labels).order_by("minute")
    samples: dict[str, list[DepthSample]] = {label: [] for label in labels}
    for values in rows.values_list(*DepthSample._fields):
        samples[values[0]].append(DepthSample(*values))
    moves = Stats.moves(using, labels, _hour(since))
    filled = {label: _filled(found, moves, first) for label, found in samples.items()}
    for label, found in samples.items():
        before = [one.moved for one in found if one.minute < first and _hour(one.minute) == _hour(first)]
        hours = sum(count for (of, hour), count in moves.items() if of == label and hour >= _hour(first))
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
    for sample in samples[:1]:
        yield _number(sample, first), MinuteSample(None, sample.oldest, sample.failing)
    for before, sample in pairwise(samples):
        here, gap = _number(sample, first), _number(sample, first) - _number(before, first)
        if gap > GAP:
            yield here, MinuteSample(None, sample.oldest, sample.failing)
            continue
        moved = sample.moved - before.moved
        if _hour(before.minute) != _hour(sample.minute):
            # Counted anew from the hour on; how many followed the last sample of the hour before is known since.
            moved += moves.get((before.model_label, _hour(before.minute)), before.moved)
        minute = MinuteSample(max(0, moved) / (60 * gap), sample.oldest, sample.failing)
        yield from ((number, minute) for number in range(here - gap + 1, here + 1))


def _number(sample: DepthSample, first: datetime) -> int:
    return round((sample.minute - first) / MINUTE)


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


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
