"""Rows that the database refuses to change, by a constraint or a trigger, so that other rows are not held up."""

import logging
from functools import lru_cache
from typing import NamedTuple

from django.db.models import Q

from stator.db.conditions import ALL, CLAIM
from stator.db.suspensions import ResumptionPace, Suspensions
from stator.db.values import Pk
from stator.graph.failures import MESSAGE_LENGTH, bounded

logger = logging.getLogger("stator.worker")

# Seconds that a refused row is left alone; they double each time, up to the second number.
LEFT_ALONE, MAX_SECONDS = 60.0, 600.0
PACE = ResumptionPace(LEFT_ALONE, MAX_SECONDS, stale=MAX_SECONDS)

# For refused claims, and how many refusals bring no warning. A constraint may forbid what another claim has just made
# impossible, and allow it once that claim has ended.
PACE_OF_CLAIMS, QUIETLY = ResumptionPace(1.0, MAX_SECONDS, stale=MAX_SECONDS), 2

# Refused rows of one model that are remembered for each kind of write; beyond that, single rows are not the cause.
MAX_REMEMBERED = 1000


class RefusedWrite(NamedTuple):
    """A kind of write that the database refused for one row."""

    deed: str
    pk: Pk


@lru_cache(maxsize=64)
def without(pks: tuple[Pk, ...]) -> Q:
    """Return a filter that leaves out some rows, if there are any."""
    return ~Q(pk__in=list(pks)) if pks else ALL


class Refusals(Suspensions):
    """The writes that the database refused for rows of one model, as seen by this process, by :class:`RefusedWrite`."""

    def __init__(self, label: str) -> None:
        super().__init__(PACE)
        self._label = label

    def others(self, deed: str) -> Q:
        """Return a filter that leaves out the rows to be left alone; the same one while these are the same."""
        return without(tuple(key.pk for key in self._of(deed) if not self.allow(key))) if self.held else ALL

    def note(self, deed: str, pk: Pk, error: BaseException) -> None:
        """Leave a row alone for a while."""
        key, known, text = RefusedWrite(deed, pk), self._of(deed), bounded(str(error), MESSAGE_LENGTH)
        if key not in known and len(known) >= MAX_REMEMBERED:
            self.end(known[0])
        times = self.suspend(key, text, PACE_OF_CLAIMS if deed == CLAIM else PACE).times
        logger.log(
            logging.INFO if deed == CLAIM and times <= QUIETLY else logging.WARNING,
            "stator.row_refused",
            extra={
                "model": self._label, "pk": str(pk), "deed": deed, "error": type(error).__name__, "message_text": text,
            },
        )  # fmt: skip

    def _of(self, deed: str) -> list[RefusedWrite]:
        """Return the rows for which a kind of write was refused, the latest last."""
        return [key for key in self.held if isinstance(key, RefusedWrite) and key.deed == deed]
