"""The chores for objects that wait for others."""

from stator.db import chores
from stator.db.interface import Operations
from stator.worker.duties import LIMIT, Duty, When


def _parked(operations: Operations) -> list[Operations]:
    return operations.parts_with(chores.reopenable(operations))


# Also of models that no longer wait for anything.
REOPEN_ALL = Duty("reopen", chores.reopen, 5 * LIMIT, parts=_parked, when=When.START)
REOPEN = Duty("reopen", chores.reopen, 5 * LIMIT, parts=_parked, needed=lambda operations: bool(operations.waits))
