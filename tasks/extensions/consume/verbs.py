"""The loops of a queue."""

from typing import TYPE_CHECKING, Unpack, cast

from tasks.queue.consuming import AsyncQueueLoop, LoopOptions, QueueLoop

if TYPE_CHECKING:
    from tasks.models import Queue


class Consumes:
    """What a queue offers to named workers that work until they are stopped."""

    def consume(self, *, worker: str, **options: Unpack[LoopOptions]) -> QueueLoop:
        """Return the loop of a named worker, which claims tasks until it is stopped: iterate over it, or ``run`` it.

        ``limit``, ``lease`` and ``metadata`` are passed to :meth:`claim`; the other options are explained at
        :class:`~tasks.queue.consuming.QueueLoop`.
        """
        return QueueLoop(cast("Queue", self), worker=worker, **options)

    def aconsume(self, *, worker: str, **options: Unpack[LoopOptions]) -> AsyncQueueLoop:
        """Return the loop of :meth:`consume` for ``async for`` and ``await run``."""
        return AsyncQueueLoop(cast("Queue", self), worker=worker, **options)
