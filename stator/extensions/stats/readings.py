"""What samples and statistics say to those who show it, and the count of what retentions delete."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise

from django.db.models import Model, Sum

from stator.extensions.stats.flows import read_flows
from stator.extensions.stats.minutes import hour_of, minutes_of
from stator.extensions.stats.models import Depth, Stats, this_hour
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.deletions import COUNTED_BY, Deleted, Retention
from stator.rows.readings import READINGS, Reading
from stator.rows.stay import Stay
from stator.survey.estimates import LATELY, Pace


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
    totals = {label: total for label, own in samples.items() if (total := _per_second(own)) is not None}
    if not totals:
        return {}
    shares = _shares(using, totals)
    return {label: Pace(read[0][-1], total, shares.get(label, {})) for label, total in totals.items()}


def _per_second(samples: list[tuple[datetime, int]]) -> float | None:
    """Return the moves a second between samples; moves are counted anew from each hour on."""
    moves, seconds = 0, 0.0
    for (before, counted), (minute, moved) in pairwise(samples):
        if hour_of(before) == hour_of(minute):
            moves, seconds = moves + max(0, moved - counted), seconds + seconds_of(minute - before)
    return moves / seconds if seconds else None


def _shares(using: str, labels: Collection[str]) -> dict[str, dict[str, float]]:
    """Return which share of the moves of each model left each state, in this hour and the one before."""
    rows = Stats.objects.using(using).filter(hour__gte=columns.after(-7200), model_label__in=list(labels))
    shares: dict[str, dict[str, float]] = {}
    left = rows.exclude(to="").order_by().values_list("model_label", "source").annotate(moved=Sum("handled"))
    for label, source, moved in left:
        shares.setdefault(label, {})[source] = moved
    for moves in shares.values():
        total = sum(moves.values()) or 1
        moves |= {source: moved / total for source, moved in moves.items()}
    return shares


# Before the label of the model in ``Stats.model_label``, so no figure of the model itself has these rows.
PREFIX = "deleted:"

# The most lines that are read.
MOST = 50


def count_deleted(using: str, label: str, counts: Mapping[Retention, int]) -> None:
    """Add how many rows of a model were deleted to the hour."""
    for retention, count in sorted(counts.items()):
        # All workers add to one row: once a pass, they do not wait for each other.
        Stats.add(using, f"{PREFIX}{label}", retention.of[:100], retention.name, shard=0, handled=count)


def deletions(using: str, labels: Iterable[str]) -> list[Deleted]:
    """Return what was deleted of some models since the hour before this one began, most first.

    Index ``stator_stats_hour``.
    """
    hour = this_hour() - timedelta(hours=1)
    ours = [f"{PREFIX}{label}" for label in labels]
    rows = Stats.objects.using(using).filter(hour__gte=hour, model_label__in=ours).order_by()
    sums = rows.values_list("model_label", "to", "source").annotate(count=Sum("handled")).order_by("-count")[:MOST]
    return [Deleted(label.removeprefix(PREFIX), Retention(name, of), count, hour) for label, name, of, count in sums]


def connect() -> None:
    """Offer the readings, and count deletions."""
    READINGS["paces"] = Reading(Depth, paces)
    READINGS["minutes"] = Reading(Depth, minutes_of)
    READINGS["flows"] = Reading(Stats, read_flows)
    READINGS["times"] = Reading(Stats, times)
    READINGS["deletions"] = Reading(Stats, deletions)
    COUNTED_BY.append(count_deleted)


def times(using: str, models: Iterable[type[Model]]) -> dict[type[Model], dict[tuple[str, str], Stay]]:
    """Return how long objects were in a state, by model and edge, for the edges taken in the last day."""
    return {model: Stats.get_for_model(model, using).time_on_edges() for model in models}
