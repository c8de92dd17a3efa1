"""What retentions have deleted, counted by the hour in rows of ``Stats`` beside those of models."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.db.models import Sum

from stator.extensions.stats.models import Stats, this_hour
from stator.rows.deletions import Deleted, Retention

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
