"""How fast the objects of models moved in the last minutes, from samples and statistics."""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import pairwise

from django.db.models import Sum

from stator.explain.estimates import LATELY, Pace
from stator.extensions.stats.models import Depth, Stats
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.clock import Now


def paces(using: str, labels: Iterable[str]) -> dict[str, Pace]:
    """Return the pace of each model of which workers have two samples of the last minutes; at most two statements.

    The samples say how many moved, and the statistics by the hour from which states. Index ``stator_depth_minute``.
    """
    wanted = list(labels)
    if not wanted:
        return {}
    rows = Depth.objects.using(using).filter(minute__gte=columns.after(-LATELY - 60), model_label__in=wanted)
    read = list(rows.order_by("minute").values_list("model_label", "minute", "moved", Now()))
    samples: dict[str, list[tuple[datetime, int]]] = {}
    for label, minute, moved, _ in read:
        samples.setdefault(label, []).append((minute, moved))
    totals = {label: total for label, found in samples.items() if (total := _per_second(found)) is not None}
    if not totals:
        return {}
    shares = _shares(using, totals)
    return {label: Pace(read[0][-1], total, shares.get(label, {})) for label, total in totals.items()}


def _per_second(samples: list[tuple[datetime, int]]) -> float | None:
    """Return the moves a second between samples; moves are counted anew from each hour on."""
    moves, seconds = 0, 0.0
    for (before, counted), (minute, moved) in pairwise(samples):
        if _hour(before) == _hour(minute):
            moves, seconds = moves + max(0, moved - counted), seconds + seconds_of(minute - before)
    return moves / seconds if seconds else None


def _hour(minute: datetime) -> datetime:
    return minute.replace(minute=0)


def _shares(using: str, labels: Collection[str]) -> dict[str, dict[str, float]]:
    """Return which share of the moves of each model left each state, in this hour and the one before."""
    rows = Stats.objects.using(using).filter(hour__gte=columns.after(-7200), model_label__in=list(labels))
    found: dict[str, dict[str, float]] = {}
    left = rows.exclude(to="").order_by().values_list("model_label", "source").annotate(moved=Sum("handled"))
    for label, source, moved in left:
        found.setdefault(label, {})[source] = moved
    for moves in found.values():
        total = sum(moves.values()) or 1
        moves |= {source: moved / total for source, moved in moves.items()}
    return found
