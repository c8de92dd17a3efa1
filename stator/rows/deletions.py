"""What retentions have deleted, by model and hour: a log line a pass, and rows of ``Stats`` beside those of models."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Sum

from stator.rows.statistics import Stats, this_hour

logger = logging.getLogger("stator.worker")

# Before the label of the model in ``Stats.model_label``, so no figure of the model itself has these rows.
PREFIX = "deleted:"

# The settings of what ends rows of the framework's own tables.
SETTINGS = {"errors": "ERROR_RETENTION", "history": "HISTORY_RETENTION", "stats": "STATS_RETENTION"}

# The most lines that are read.
MOST = 50


class Retention(NamedTuple):
    """What ended rows: the name of an option or a setting, and the state or the queue that has it, if one does."""

    name: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.name} of {self.of}" if self.of else self.name


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many rows of a model a retention has deleted since ``since``, the beginning of an hour."""

    label: str
    retention: Retention
    count: int
    since: datetime


def note_deleted(using: str, label: str, counts: Mapping[Retention, int]) -> None:
    """Log how many rows of a model a pass has deleted, and add that to the hour; call it once a pass."""
    if not (total := sum(counts.values())):
        return
    for retention, count in sorted(counts.items()):
        # All workers add to one row: once a pass, they do not wait for each other.
        Stats.add(using, f"{PREFIX}{label}", retention.of[:100], retention.name, shard=0, handled=count)
    by = ", ".join(str(retention) for retention, count in sorted(counts.items()) if count)
    logger.info("stator.rows_deleted", extra={"model": label, "count": total, "retention": by})


def note_pruned(using: str, counts: Mapping[tuple[str, str], int]) -> None:
    """Do the same for the framework's own tables, by their label and which retention ends their rows."""
    for (label, kept), count in sorted(counts.items()):
        if kept in SETTINGS:
            note_deleted(using, label, {Retention(SETTINGS[kept]): count})


def hour_before() -> datetime:
    """Return the beginning of the hour before this one; deletions are counted by the hour."""
    return this_hour() - timedelta(hours=1)


def deleted_since(using: str, labels: Iterable[str], hour: datetime) -> list[Deleted]:
    """Return what was deleted of some models since an hour began, most first. Index ``stator_stats_hour``."""
    ours = [f"{PREFIX}{label}" for label in labels]
    rows = Stats.objects.using(using).filter(hour__gte=hour, model_label__in=ours).order_by()
    sums = rows.values_list("model_label", "to", "source").annotate(count=Sum("handled")).order_by("-count")[:MOST]
    return [Deleted(label.removeprefix(PREFIX), Retention(name, of), count, hour) for label, name, of, count in sums]
