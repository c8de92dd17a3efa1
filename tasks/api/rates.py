"""How many requests a consumer may make, and rows publish, in a minute, over all processes.

Both are counted in the consumer's row. A process takes a block from it at a time, a twentieth of what there is, so that
it writes some twenty times in a minute and not once for each request; what is left of a block when the minute ends is
lost. Refusals are remembered until then and cost no statement.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Now, TruncMinute

from tasks.api.errors import TooMany
from tasks.consumers import Consumer

BLOCKS = 20
MINUTE = 60.0

# The columns that count, and what is told to those that have used them up.
TOLD = {
    "used_count": "this token has made all the requests it may make in a minute",
    "used_rows": "this token has not so many left of the rows it may publish in a minute",
}


@dataclass(slots=True)
class Block:
    """What this process may still take for one consumer; ``ends`` with the minute, in monotonic seconds.

    ``refused``: the least that the database did not have any more.
    """

    left: int
    ends: float
    refused: int | None = None


class Rates:
    """The blocks of one process, of one column, for at most as many consumers as there are."""

    def __init__(self, column: str = "used_count") -> None:
        self._column = column
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()

    def take(self, consumer: Consumer, most: int, amount: int = 1) -> None:
        """Count so much; ``TooMany`` when it is more than is left of ``most`` in this minute."""
        with self._lock:
            missing = self._take_here(consumer.pk, amount)
        while missing:
            block = _block_from_database(consumer.pk, self._column, missing, most)
            with self._lock:
                self._merge(consumer.pk, block)
                missing = self._take_here(consumer.pk, amount, new=True)

    def forget(self) -> None:
        """Ask the database again, for everybody."""
        with self._lock:
            self._blocks.clear()

    def _merge(self, pk: int, block: Block) -> None:
        # Another thread may have taken a block meanwhile, which must not be lost.
        present = self._blocks.get(pk)
        if present and present.ends > time.monotonic():
            block.left += present.left
            # What is left in a minute only becomes less.
            block.refused = min((each for each in (block.refused, present.refused) if each), default=None)
        self._blocks[pk] = block

    def _take_here(self, pk: int, amount: int, *, new: bool = False) -> int:
        """Take it from the block, if it has so much; return how much is missing."""
        block, now = self._blocks.get(pk), time.monotonic()
        if block is None or (block.ends <= now and not new):
            return amount
        if block.left >= amount:
            block.left -= amount
            return 0
        missing = amount - block.left
        if block.refused is not None and missing >= block.refused:
            raise TooMany(TOLD[self._column], block.ends - now)
        return missing


def _block_from_database(pk: int, column: str, least: int, most: int) -> Block:
    """As much as can be had at once, no less than ``least``; a block that says so when that is not left."""
    # First as far as the database says the minute is: were it over before the count, the block would merely end early.
    ends = time.monotonic() + _seconds_left(pk)
    for count in sorted({max(least, most // BLOCKS), least}, reverse=True):
        if count <= most and _count(pk, column, count, most):
            return Block(count, ends)
    return Block(0, ends, refused=least)


def _count(pk: int, column: str, count: int, most: int) -> bool:
    """Take so much in the consumer's row, if there is as much left in this minute; a new one begins for all columns."""
    minute = TruncMinute(Now())
    fresh = Q(used_minute=None) | Q(used_minute__lt=minute)
    room = Q(**{f"{column}__lte": most - count})
    changes: dict[str, Any] = {
        each: Case(When(fresh, then=Value(taken)), default=F(each) + taken)
        for each, taken in {**dict.fromkeys(TOLD, 0), column: count}.items()
    }
    rows = Consumer.objects.filter(fresh | room, pk=pk)
    return rows.update(**changes, used_minute=minute) > 0


def _seconds_left(pk: int) -> float:
    now = Consumer.objects.filter(pk=pk).values_list(Now(), flat=True).first()
    return MINUTE - (now.second + now.microsecond / 1e6) if now else 0.0


rates, row_rates = Rates(), Rates("used_rows")
