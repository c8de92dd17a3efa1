"""The batch of an attempt."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.models import Task

# The beginning of the keys of tasks that batches publish; the number of the batch follows.
BATCH_KEY = "tasks.batch:"


class KnowsBatch:
    """What the attempt of a task says of its batch."""

    __slots__ = ()

    task: "Task"

    @property
    def batch(self) -> int | None:
        """The number of the batch that the task is in, or whose action it is; None if there is none."""
        prefix, _, occasion = (self.task.key or "").rpartition(":")
        of_batch = prefix.removeprefix(BATCH_KEY)
        return int(of_batch) if occasion and prefix != of_batch and of_batch.isdecimal() else self.task.batch_id
