"""Rate limits of consumers: requests and published rows per minute, counted over all processes.

Both counters are columns of the consumer's row. A process takes a block of a twentieth of the limit at a time, so it
writes about twenty times a minute instead of once per request. The rest of a block is lost when the minute ends. A
refusal is remembered until then and costs no statement. See decision 29.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import TruncMinute
from django.db.models.sql.compiler import SQLCompiler

from stator.models import Now
from stator.scopes import path_in_use
from tasks.api.errors import TooMany
from tasks.extensions.api.models import Consumer
from tasks.rows.databases import home

BLOCKS = 20
MINUTE = 60.0

# The counters, each with the message of its refusal.
MESSAGES = {
    "used_count": "this token has used all its requests of this minute; wait as long as Retry-After says",
    "used_rows": "this token has too few rows left to publish in this minute; wait as long as Retry-After says",
}


class Minute(TruncMinute):
    """The minute of a moment, on PostgreSQL in the type of a column: Citus compares no column with another type."""

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object) -> Any:
        """Compile to a moment with a time zone, unless ``USE_TZ`` is off."""
        text, params = self.as_sql(compiler, connection, **context)
        return f"CAST({text} AS {self.output_field.db_type(connection)})", params


@dataclass(slots=True)
class Block:
    """The allowance that this process still has for one consumer.

    ``ends``: when the minute is over, in monotonic seconds. ``refused``: the smallest amount that the database has
    refused.
    """

    left: int
    ends: float
    refused: int | None = None


# A consumer: the schema of its row, since each tenant has consumers of its own, and its key.
Who = tuple[str, int]


class Rates:
    """The blocks of one process for one counter, at most one per consumer."""

    def __init__(self, column: str = "used_count") -> None:
        self._column = column
        self._blocks: dict[Who, Block] = {}
        self._lock = threading.Lock()
        # Held while the database is asked, so that threads that miss a block at the same time share one.
        self._asking = threading.Lock()

    def take(self, consumer: Consumer, most: int, amount: int = 1) -> None:
        """Count ``amount``; raise ``TooMany`` if it exceeds what is left of ``most`` in this minute."""
        who = path_in_use(connections[home()]), consumer.pk
        with self._lock:
            missing = self._take_here(who, amount)
        if not missing:
            return
        with self._asking:
            with self._lock:
                missing = self._take_here(who, amount)
            while missing:
                block = _block_from_database(consumer.pk, self._column, missing, most)
                with self._lock:
                    self._merge(who, block)
                    missing = self._take_here(who, amount, new=True)

    def _merge(self, who: Who, block: Block) -> None:
        # The rest of the previous block was too small for this request, but may be enough for a smaller one.
        present = self._blocks.get(who)
        if present and present.ends > time.monotonic():
            block.left += present.left
            # Within a minute the remaining allowance only shrinks.
            block.refused = min((each for each in (block.refused, present.refused) if each), default=None)
        self._blocks[who] = block

    def _take_here(self, who: Who, amount: int, *, new: bool = False) -> int:
        """Take ``amount`` from the block if it has that much; return how much is missing."""
        block, now = self._blocks.get(who), time.monotonic()
        if block is None or (block.ends <= now and not new):
            return amount
        if block.left >= amount:
            block.left -= amount
            return 0
        missing = amount - block.left
        if block.refused is not None and missing >= block.refused:
            raise TooMany(MESSAGES[self._column], block.ends - now)
        return missing


def _block_from_database(pk: int, column: str, least: int, most: int) -> Block:
    """Return a block taken from the database: a twentieth of the limit, else ``least``, else a refusal."""
    # Read the time before counting: if the minute ends in between, the block only expires early.
    ends = time.monotonic() + _seconds_left(pk)
    for count in sorted({max(least, most // BLOCKS), least}, reverse=True):
        if count <= most and _count(pk, column, count, most):
            return Block(count, ends)
    return Block(0, ends, refused=least)


def _count(pk: int, column: str, count: int, most: int) -> bool:
    """Take ``count`` from the consumer's row and return whether the minute had it; a new minute resets all counters."""
    minute = Minute(Now())
    fresh = Q(used_minute=None) | Q(used_minute__lt=minute)
    room = Q(**{f"{column}__lte": most - count})
    changes: dict[str, Case] = {
        each: Case(When(fresh, then=Value(taken)), default=F(each) + taken)
        for each, taken in {**dict.fromkeys(MESSAGES, 0), column: count}.items()
    }
    rows = Consumer.objects.filter(fresh | room, pk=pk)
    return rows.update(**changes, used_minute=minute) > 0


def _seconds_left(pk: int) -> float:
    now = Consumer.objects.using(home()).filter(pk=pk).values_list(Now(), flat=True).first()
    return MINUTE - (now.second + now.microsecond / 1e6) if now else 0.0


rates, row_rates = Rates(), Rates("used_rows")
