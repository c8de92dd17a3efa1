"""The parts of the tasks' table: a spread queue has its tasks in all of them, any other queue in the first."""

from django.db import connections

from stator.capabilities import capabilities_of
from stator.models import SPREAD, part_of
from tasks.rows.queues import QueueRow


def place_of_task(queue: QueueRow, value: str | None = None, key: str | None = None) -> dict[str, int]:
    """Return the column of the part of a new task, or nothing for the first part.

    Equal values of an exclusive key are in one part, else equal keys.
    """
    return {"shard": part_of(key if value is None else value)} if is_spread(queue) else {}


def parts_of(queue: QueueRow) -> dict[str, int]:
    """Return the column of the only part that has tasks of the queue, or nothing for all parts."""
    return {} if queue.spread else {"shard": SPREAD[0]}


def is_spread(queue: QueueRow) -> bool:
    """Return whether tasks of the queue are in all parts; on databases without partitions they are in the first."""
    return queue.spread and capabilities_of(connections[str(queue._state.db)]).has_partitions
