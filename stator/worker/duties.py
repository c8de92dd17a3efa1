"""Duties: chores for all rows of a model, as functions that a scheduler calls until nothing is left to do."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stator.conf import Settings
from stator.db import Operations, chores
from stator.db.batch import Moves
from stator.worker.calls import calls_of
from stator.worker.recorder import send_moves

logger = logging.getLogger("stator.worker")

# Rows per statement; a duty that finds more goes on with the next statement.
LIMIT = 1000

# Rows per statement of an SQL transition: beyond about this number the cost per row no longer falls.
MOVED_AT_ONCE = 20_000

# The queue is counted up to this depth: counting millions of rows every half minute would cost more than it is worth.
COUNTED = 100_000


@dataclass(frozen=True, slots=True)
class Duty:
    """A chore: ``call(*models)`` does a bounded part of it and returns whether there may be more.

    It gets the operations of one model, or of all models that the process works on in one database.
    """

    name: str
    call: Callable[..., bool]


def mark_ready(operations: Operations) -> bool:
    """Mark due rows ready; return whether there may be more."""
    return chores.mark_ready(operations, 5 * LIMIT) == 5 * LIMIT


def reap(operations: Operations) -> bool:
    """End leases that ran out; return whether there may be more."""
    reaped = operations.reap(LIMIT)
    if reaped:
        workers = sorted({worker for _, worker in reaped})
        logger.warning(
            "stator.leases_expired",
            extra={"model": operations.label, "count": len(reaped), "held_by": workers[:10]},
        )
    return len(reaped) == LIMIT


def settle(operations: Operations) -> bool:
    """Clear the ready mark of rows that nothing attempts or that are not due; return whether there may be more."""
    return chores.settle(operations, 5 * LIMIT) == 5 * LIMIT


def reopen(operations: Operations) -> bool:
    """Make parked rows ready that no longer wait for anything; return whether there may be more."""
    return chores.reopen(operations, 5 * LIMIT) == 5 * LIMIT


def reopen_where_any_wait(operations: Operations) -> bool:
    """Call ``reopen`` for models whose objects wait for others."""
    return bool(operations.waits) and reopen(operations)


def time_out(operations: Operations) -> bool:
    """Move resting rows past their timeout; return whether there may be more."""
    return _tell(operations, chores.time_out(operations, LIMIT, _mover(operations))) >= LIMIT


def rename(operations: Operations) -> bool:
    """Move rows with former names of states; return whether there may be more."""
    return _tell(operations, chores.rename(operations, LIMIT, _mover(operations))) >= LIMIT


def move_matching(operations: Operations) -> bool:
    """Do the SQL transitions; return whether there may be more."""
    return _tell(operations, chores.move_matching(operations, MOVED_AT_ONCE, _mover(operations))) >= MOVED_AT_ONCE


def delete_due(operations: Operations) -> bool:
    """Delete rows past their ``delete_after``; return whether there may be more."""
    limit = chores.deleted_at_once(operations.model, LIMIT)
    return chores.delete_due(operations, limit) >= limit


def sample_depths(*models: Operations) -> bool:
    """Record the depth of the queue."""
    chores.sample_depths(*models, limit=COUNTED)
    return False


def prune(*models: Operations) -> bool:
    """Delete rows past their retention, thin samples of the queue, and merge statistics."""
    with models[0].transaction():
        deleted = chores.prune(models[0].alias, LIMIT, **retention_of(models[0].settings))
    return max(deleted, chores.thin(models[0], LIMIT), chores.merge_stats(models[0], LIMIT)) >= LIMIT


def retention_of(settings: Settings) -> dict[str, float]:
    """Return the seconds for which :func:`chores.prune` keeps each kind of row."""
    return {
        "errors": settings.ERROR_RETENTION,
        "history": settings.HISTORY_RETENTION,
        "stats": settings.STATS_RETENTION,
    }


MARK_READY = Duty("mark_ready", mark_ready)
REAP = Duty("reap", reap)

# Done for each model when a worker starts: only a deployment makes these necessary.
START = (Duty("settle", settle), Duty("reopen", reopen))

# Done for each model in every scheduling pass, in this order.
PASS = (
    Duty("rename", rename),
    Duty("move_matching", move_matching),
    Duty("time_out", time_out),
    Duty("delete_due", delete_due),
    Duty("reopen", reopen_where_any_wait),
)

# Done for each database after that, for all its models in one transaction.
SAMPLE = Duty("sample_depths", sample_depths)
PRUNE = Duty("prune", prune)


def perform(duty: Duty, *models: Operations, stopped: Callable[[], bool]) -> None:
    """Do a duty until nothing is left or the worker stops."""
    while duty.call(*models) and not stopped():
        pass


def _mover(operations: Operations) -> Callable[..., Moves]:
    return calls_of(operations.settings).mover(operations)


def _tell(operations: Operations, moves: Moves) -> int:
    if moves.listed:
        send_moves(operations, moves.listed)
    return moves.count
