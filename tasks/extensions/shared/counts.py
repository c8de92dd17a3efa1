"""How many workers a task is for."""

from collections.abc import Collection

from tasks.exceptions import TaskError


def check_count(count: int, names: Collection[str]) -> None:
    """Raise ``TaskError`` if fewer workers are named than a task is for."""
    if names and len(set(names)) < count:
        raise TaskError(f"worker_count={count} needs as many workers, but worker_ids names fewer; name more or none")
