"""The chores for objects that wait for others."""

from stator.db import chores
from stator.db.interface import Operations
from stator.extensions.related.waits import reopenable, waits_of
from stator.rows import columns
from stator.worker.duties import LIMIT, Duty, When


def reopen(operations: Operations, limit: int) -> int:
    """Make parked rows ready that no longer wait for anything; return how many. Index ``st_rest``.

    Moves wake their waiters. This duty is for cases without such a move: an awaited object was deleted, a row was
    locked when it should have been woken, or a model waits for less than before.
    """
    return chores.change(operations, "reopen", [reopenable(operations)], limit, columns.waking())


def _parked(operations: Operations) -> list[Operations]:
    return operations.parts_with(reopenable(operations))


def _waits(operations: Operations) -> bool:
    return bool(waits_of(operations.model))


# Also of models that no longer wait for anything.
REOPEN_ALL = Duty("reopen", reopen, 5 * LIMIT, parts=_parked, when=When.START)
REOPEN = Duty("reopen", reopen, 5 * LIMIT, parts=_parked, needed=_waits)
