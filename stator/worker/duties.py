"""Duties: chores for all rows of a model, as a table of statements that the scheduler repeats until nothing is left."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from time import monotonic, sleep
from typing import Any

from django.utils.module_loading import import_string

from stator.batteries import extensions
from stator.conf import Settings
from stator.db import chores, own_tables
from stator.db.interface import Moves, Operations
from stator.rows.deletions import Retention, note_deleted, note_pruned
from stator.rows.record_tables import RETENTIONS
from stator.worker.announcements import send_moves
from stator.worker.around import mover_of

logger = logging.getLogger("stator.worker")

# Rows per statement; a duty that finds more goes on with the next statement.
LIMIT = 1000

# Rows per statement of an SQL transition: beyond about this number the cost per row no longer falls.
MOVED_AT_ONCE = 20_000

# The most seconds of rest after a part of a duty.
MAX_REST = 0.25

# Scheduling passes between deletions of old reports and statistics; the first pass deletes, too.
PRUNED_EVERY = 20


def _unsettled(operations: Operations) -> list[Operations]:
    return operations.parts_with(*chores.unsettled(operations))


def _matching(operations: Operations) -> list[Operations]:
    return operations.parts_with(*chores.matching(operations))


def all_rows(operations: Operations) -> list[Operations]:
    """Return the operations on all rows, for a duty that is done once."""
    return [operations]


class When(Enum):
    """When a duty is done, as far as a poll does not find its rows."""

    # Before the rows of a scope are claimed.
    FIRST = "first"
    # For each model in the first pass of a worker: only a deployment makes it necessary.
    START = "start"
    # For each model in every scheduling pass.
    PASS = "pass"
    # After these, for all models of a scope together.
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class Duty:
    """A chore: ``statement(*models, limit=...)`` handles up to ``limit`` rows and returns how many.

    It gets the operations of one model, or of all models of one database, and returns None if nothing can be left. If
    it ``moves`` objects, it also gets the function that moves them, and returns the moves. ``needed``: whether a model
    needs the duty. ``every``: 10 means that the first and then each tenth scheduling pass does it. ``gives_way``: it
    may find a whole table, so on a database with one writer it rests after each part, for as long as that part took.
    ``parts``: the parts of the rows of a model for which it is done. ``ended`` is called for the model once nothing is
    left.
    """

    name: str
    statement: Callable[..., Any]
    limit: int = LIMIT
    moves: bool = False
    needed: Callable[[Operations], bool] = lambda operations: True
    every: int = 1
    gives_way: bool = False
    parts: Callable[[Operations], list[Operations]] = lambda operations: operations.parts()
    ended: Callable[[Operations], None] = lambda operations: None
    when: When = When.PASS

    def comes_in(self, passed: int) -> bool:
        """Return whether it belongs to the pass that follows so many."""
        return passed % self.every == 0

    def call(self, *models: Operations) -> bool:
        """Do a bounded part of it; return whether there may be more."""
        if not self.moves:
            return (self.statement(*models, limit=self.limit) or 0) >= self.limit
        [operations] = models
        moves: Moves = self.statement(operations, limit=self.limit, move=mover_of(operations))
        if moves.listed:
            send_moves(operations, moves.listed)
        return moves.count >= self.limit


def perform(duty: Duty, *models: Operations, stopped: Callable[[], bool]) -> None:
    """Do a duty until nothing is left or the worker stops."""
    for group in [(part,) for part in duty.parts(*models)] if len(models) == 1 else [models]:
        part = group[0]
        if part.scope.node is None:
            _perform(duty, *group, stopped=stopped)
        elif part.locks.allow(duty.name):
            with part.locks.spared(duty.name):
                _perform(duty, part, stopped=stopped)
    duty.ended(models[0])


def _perform(duty: Duty, *models: Operations, stopped: Callable[[], bool]) -> None:
    while True:
        began = monotonic()
        if not duty.call(*models) or stopped():
            return
        if duty.gives_way and not models[0].capabilities.concurrent_writers:
            sleep(min(monotonic() - began, MAX_REST))


def _reap(operations: Operations, limit: int) -> int:
    """End leases that ran out."""
    reaped = operations.reap(limit)
    if reaped:
        workers = sorted({worker for _, worker in reaped})
        logger.warning(
            "stator.leases_expired",
            extra={"model": operations.label, "count": len(reaped), "held_by": workers[:10]},
        )
    return len(reaped)


def _delete_due(operations: Operations, limit: int) -> int:
    """Delete rows past their ``delete_after``; a part counts as a full one if there may be more rows."""
    most = chores.deleted_at_once(operations.model, limit)
    deleted = chores.delete_due(operations, most, _deleted[operations.scope.of_all, operations.label])
    return limit if deleted >= most else deleted


# Rows that were deleted and are not noted: by scope and model, then by state. The thread of duties alone uses it.
_deleted = defaultdict[tuple[object, str], Counter[str]](Counter)


def _note_deleted(operations: Operations) -> None:
    """Note once a pass how many rows a model's ``delete_after`` has deleted."""
    key = operations.scope, operations.label
    counts = {Retention("delete_after", state): count for state, count in _deleted[key].items() if count}
    if counts:
        with operations.transaction():
            note_deleted(operations.alias, operations.label, counts)
    del _deleted[key]


# The same of the framework's own tables, by their label and what ends them.
_pruned = defaultdict[object, Counter[tuple[str, str]]](Counter)


def _note_pruned(operations: Operations) -> None:
    """Note once a pass how many rows of each of the framework's own tables were deleted."""
    if counts := _pruned[operations.scope]:
        with operations.transaction():
            note_pruned(operations.alias, counts)
    del _pruned[operations.scope]


def _prune(operations: Operations, limit: int) -> int:
    """Delete rows past their retention, and do the upkeep of extensions, of all models."""
    maintain(operations, limit)
    with operations.transaction():
        deleted = own_tables.prune(
            operations.alias, limit, _pruned[operations.scope], **retention_of(operations.settings)
        )
    return max([deleted, *(upkeep.of(operations, limit) for upkeep in upkeeps())])


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is done with the table of an extension beside the deletion of old rows, up to a limit.

    ``name`` and ``said``: what ``stator prune`` calls the rows, in JSON and in its lines.
    """

    name: str
    said: str
    of: Callable[[Operations, int], int]


@cache
def upkeeps() -> tuple[Upkeep, ...]:
    """Return the upkeep of extensions, in the order of their table."""
    return tuple(import_string(path) for extension in extensions() for path in extension.upkeep)


def maintain(operations: Operations, limit: int) -> None:
    """Make the partitions of the time to come, and drop old ones."""
    own_tables.keep_up_all(operations.alias, **retention_of(operations.settings))


def retention_of(settings: Settings) -> dict[str, float]:
    """Return how many seconds :func:`own_tables.prune` keeps each kind of row."""
    return {kept: getattr(settings, name) for kept, name in RETENTIONS.items()}


# Done when a poll finds such rows.
MARK_READY = Duty(
    "mark_ready", chores.mark_ready, 5 * LIMIT, parts=lambda operations: operations.parts_with(*operations.due())
)
REAP = Duty("reap", _reap, parts=lambda operations: operations.parts_with(*operations.lost()))

SETTLE = Duty("settle", chores.settle, 5 * LIMIT, parts=_unsettled, when=When.START)

# Also done when a poll finds rows past a deadline.
TIME_OUT = Duty("time_out", chores.time_out, moves=True)

DELETE = Duty("delete_due", _delete_due, ended=_note_deleted)

# Those of the core, in this order.
CORE = (
    SETTLE,
    Duty("rename", chores.rename, moves=True, gives_way=True),
    Duty("move_matching", chores.move_matching, MOVED_AT_ONCE, moves=True, parts=_matching),
    TIME_OUT,
    DELETE,
)

# Done for the framework's own tables after all others.
PRUNE = Duty("prune", _prune, every=PRUNED_EVERY, parts=all_rows, ended=_note_pruned)


@cache
def duties_of(when: When) -> tuple[Duty, ...]:
    """Return the duties of the core, and then those of extensions, in the order of their table."""
    paths = (path for extension in extensions() for path in extension.duties)
    return tuple(duty for duty in (*CORE, *map(import_string, paths)) if duty.when is when)
