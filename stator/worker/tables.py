"""Models whose tables lack something: a worker leaves them out until their tables are complete."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError, InterfaceError

from stator.db.interface import Operations
from stator.db.rows import TABLE
from stator.db.suspensions import ResumptionPace
from stator.db.tables import lack_of
from stator.worker.startup import Unusable
from stator.worker.threads import RunInThread

logger = logging.getLogger("stator.worker")

# Seconds after which the tables of left-out models are read again.
PACE = ResumptionPace(5.0, 5.0)


class Tables:
    """The models that a process leaves out: their operations have ``lacking``.

    ``run`` calls functions in a thread with its own connections. ``changes`` counts how often a model was left out or
    taken back. ``has_paths``: other scopes may have complete tables than those of ``operations``.
    """

    def __init__(self, operations: list[Operations], run: RunInThread, *, has_paths: bool = False) -> None:
        self.changes = 0
        self._has_paths = has_paths
        self._operations = operations
        self._run = run

    @property
    def left_out(self) -> list[Operations]:
        """The operations of the models that are left out."""
        return [operations for operations in self._operations if operations.lacking]

    async def examine(self) -> None:
        """Read the tables of all models; raise :class:`~stator.worker.startup.Unusable` if none is complete."""
        await self.read(self._operations)

    async def look_again(self) -> None:
        """Read the tables of left-out models again if it is time."""
        if due := [operations for operations in self.left_out if operations.suspended.allow(TABLE)]:
            await self.read(due)

    async def read(self, group: list[Operations]) -> None:
        """Read the tables of some models."""
        lacking = await self._run(_lacks, group)
        for operations in list(group):
            before = operations.lacking
            if lack := lacking.get(operations, before):
                operations.suspended.suspend(TABLE, lack, PACE)
            else:
                operations.suspended.end(TABLE)
            if lack != before:
                self.changes += 1
                _log(operations)
        left_out = self.left_out
        if left_out and len(left_out) == len(self._operations) and not self._has_paths:
            raise Unusable("\n".join(operations.lacking for operations in left_out))


def _lacks(group: Iterable[Operations]) -> dict[Operations, str]:
    """Return what the table of each model lacks, without models in unreachable databases."""
    lacking: dict[Operations, str] = {}
    away: set[str] = set()
    for operations in group:
        if operations.alias in away:
            continue
        try:
            with operations.scope.enter():
                lacking[operations] = lack_of(operations.model, operations.alias)
        except (DatabaseError, InterfaceError):
            # The worker's own statements meet this error as well; they wait for the database or end the worker.
            away.add(operations.alias)
    return lacking


def _log(operations: Operations) -> None:
    fields = {"model": operations.label, **operations.scope.fields()}
    if operations.lacking:
        logger.error("stator.model_left_out", extra={**fields, "why": operations.lacking})
    else:
        logger.info("stator.model_back", extra=fields)
