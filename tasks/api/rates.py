"""How many requests a consumer may make in a minute, over all processes.

The count is in the consumer's row. A process takes a block of requests from it at a time, so that it writes some
twenty times in a minute and not once for each request; what is left of a block when the minute ends is lost. Refusals
are remembered until then and cost no statement.
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


@dataclass(slots=True)
class Block:
    """What this process may still take for one consumer; ``ends`` with the minute, in monotonic seconds."""

    left: int
    ends: float


class Rates:
    """The blocks of one process, for at most as many consumers as there are."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()

    def take(self, consumer: Consumer, most: int) -> None:
        """Count one request; ``TooMany`` when it is one more than ``most`` in this minute."""
        with self._lock:
            if self._take_here(consumer.pk):
                return
        block = _block_from_database(consumer.pk, most)
        with self._lock:
            self._merge(consumer.pk, block)
            self._take_here(consumer.pk, new=True)

    def forget(self) -> None:
        """Ask the database again, for everybody."""
        with self._lock:
            self._blocks.clear()

    def _merge(self, pk: int, block: Block) -> None:
        # Another thread may have taken a block meanwhile, which must not be lost.
        present = self._blocks.get(pk)
        if present and present.left > 0 and present.ends > time.monotonic():
            block.left = present.left + max(0, block.left)
        self._blocks[pk] = block

    def _take_here(self, pk: int, *, new: bool = False) -> bool:
        block, now = self._blocks.get(pk), time.monotonic()
        if block is None or (block.ends <= now and not new):
            return False
        if block.left > 0:
            block.left -= 1
            return True
        if block.left < 0:
            raise TooMany("this token has made all the requests it may make in a minute", block.ends - now)
        return False


def _block_from_database(pk: int, most: int) -> Block:
    """As many as can be had at once; a block of -1 when there are none left."""
    # First as far as the database says the minute is: were it over before the count, the block would merely end early.
    ends = time.monotonic() + _seconds_left(pk)
    for count in sorted({max(1, most // BLOCKS), 1}, reverse=True):
        if _count(pk, count, most):
            return Block(count, ends)
    return Block(-1, ends)


def _count(pk: int, count: int, most: int) -> bool:
    """Take so many in the consumer's row, if there are as many left in this minute."""
    minute = TruncMinute(Now())
    fresh = Q(used_minute=None) | Q(used_minute__lt=minute)
    room = Q(used_count__lte=most - count)
    changes: dict[str, Any] = {
        "used_count": Case(When(fresh, then=Value(count)), default=F("used_count") + count),
        "used_minute": minute,
    }
    return Consumer.objects.filter(fresh | room, pk=pk).update(**changes) > 0


def _seconds_left(pk: int) -> float:
    now = Consumer.objects.filter(pk=pk).values_list(Now(), flat=True).first()
    return MINUTE - (now.second + now.microsecond / 1e6) if now else 0.0


rates = Rates()
