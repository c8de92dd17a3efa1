"""The last hour by minute: moves, waits and failing objects as workers sampled them, and the live workers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stator.explain.survey import WorkerStatus

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
