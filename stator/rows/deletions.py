"""What retentions have deleted, by model and hour: a log line a pass, and what extensions count of it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from stator.rows.record_tables import RETENTIONS

logger = logging.getLogger("stator.worker")


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


# What extensions do with these numbers, in the transaction that has them: given the alias, the label and the counts.
COUNTED_BY: list[Callable[[str, str, Mapping[Retention, int]], None]] = []


def note_deleted(using: str, label: str, counts: Mapping[Retention, int]) -> None:
    """Log how many rows of a model a pass has deleted, and have it counted; call it once a pass."""
    if not (total := sum(counts.values())):
        return
    for count_deleted in COUNTED_BY:
        count_deleted(using, label, counts)
    by = ", ".join(str(retention) for retention, count in sorted(counts.items()) if count)
    logger.info("stator.rows_deleted", extra={"model": label, "count": total, "retention": by})


def note_pruned(using: str, counts: Mapping[tuple[str, str], int]) -> None:
    """Do the same for the framework's own tables, by their label and which retention ends their rows."""
    for (label, kept), count in sorted(counts.items()):
        if kept in RETENTIONS:
            note_deleted(using, label, {Retention(RETENTIONS[kept]): count})
