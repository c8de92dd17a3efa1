"""Claims that wait, in Python, and the loops of named workers: ``queue.consume()`` and ``queue.aconsume()``."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections, transaction

from stator.exceptions import Fail, LeaseLost, passable
from stator.graph.backoff import MAX_SECONDS
from tasks.client.consuming import LEFT, MAX_PAUSE, MIN_PAUSE, ConsumerLoop, Loop, StopSignals
from tasks.exceptions import ShardUnavailable, TaskError
from tasks.messages import Json
from tasks.queue import claiming
from tasks.queue.held_claims import TaskClaim
from tasks.queue.waiting import AsyncWake, auntil_some, until_some
from tasks.rows.queues import QueueRow

# Seconds after which a waiting loop asks for tasks again, so that its worker counts as live.
MAX_WAIT = 20.0


def claim(
    queue: QueueRow,
    wait: float,
    *,
    worker: str,
    limit: int = 1,
    lease: float | None = None,
    metadata: dict[str, Any] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[TaskClaim]:
    """Claim tasks; if there are none, wait up to ``wait`` seconds for some, or until ``stopped`` returns True."""
    _check_wait(queue, wait)
    take = partial(claiming.claim, queue, worker, limit, lease, metadata)
    return take() or (until_some(take, queue, wait, stopped=stopped)[0] if wait else [])


async def aclaim(queue: QueueRow, *, wait: float = 0.0, **options: Any) -> list[TaskClaim]:
    """Claim like :func:`claim`, without blocking a thread while it waits."""
    await sync_to_async(_check_wait)(queue, wait)
    take = partial(sync_to_async(claim), queue, 0.0, **options)
    return await take() or ((await auntil_some(take, queue, wait))[0] if wait else [])


class LoopOfQueue(Loop):
    """The common part of the loops on one queue."""

    lost_errors = (LeaseLost,)
    passing_errors = (OperationalError, InterfaceError, ShardUnavailable)
    final_errors = (Fail,)

    def __init__(
        self,
        queue: QueueRow,
        *,
        worker: str,
        limit: int = 1,
        lease: float | None = None,
        metadata: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._queue = queue
        self._wanted: dict[str, Any] = {"worker": worker, "limit": limit, "lease": lease, "metadata": metadata}

    def recover(self) -> None:
        """Close the broken connections of this thread."""
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()


class QueueLoop(LoopOfQueue, ConsumerLoop):
    """The loop of a named worker on one queue.

    Errors of the database do not end it: they are logged, and the statement is repeated.

    ``limit``: how many tasks it claims at once; it renews the leases of all of them while it works on one after the
    other.
    ``local_retries``: how many times ``run`` calls its function again after an error other than ``Fail``, unless the
    task sets this itself.
    ``local_delay``: the seconds before each of these calls.
    """

    def __init__(self, queue: QueueRow, **options: Any) -> None:
        super().__init__(queue, **options)
        self.take = partial(claim, queue, MAX_WAIT, **self._wanted, stopped=lambda: self.stopped)

    def leave_thread(self) -> None:
        """Close the connections of the thread that sent heartbeats."""
        connections.close_all()


class AsyncQueueLoop(LoopOfQueue):
    """The loop of a named worker for ``async for`` and ``await run``; a thread of its own sends the heartbeats.

    If you leave the body of an ``async for`` by an error or by ``break``, Python closes the loop only some time later.
    To release the claim at once, use ``run``, or iterate over ``contextlib.aclosing(loop.claims())``.
    """

    def __init__(self, queue: QueueRow, **options: Any) -> None:
        super().__init__(queue, **options)
        self._take = partial(sync_to_async(claim), queue, 0.0, **self._wanted)
        self._woken: AsyncWake | None = None
        self._changed = asyncio.Event()
        self._work: asyncio.Future[Any] | None = None

    def stop(self) -> None:
        """Claim nothing more, and end after the current task. Any thread and any signal handler may call this."""
        super().stop()
        if self._woken is not None:
            self._woken.set()

    async def run(self, handle: Callable[[Any], Awaitable[Any]]) -> None:
        """Await ``handle(claim)`` for each task until the loop is stopped; what it returns is the task's result.

        If ``handle`` still raises after all local retries, the attempt fails with that error and the loop goes on. If
        it ends the claim itself, nothing else is done. If the claim is lost, ``handle`` is cancelled.
        """
        async with aclosing(self.claims()) as claims:
            async for held in claims:
                await self._attempt(held, handle)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.claims()

    async def claims(self) -> Any:
        """Yield claims until the loop is stopped."""
        self._woken = AsyncWake()
        begun = None
        with StopSignals(self.stop), ThreadPoolExecutor(1, "heartbeats of a consumer") as thread:
            beats = asyncio.create_task(self._beat(thread))
            try:
                while claims := await self._next_claims():
                    self._held = claims
                    self._changed.set()
                    while self._held and not self.stopped:
                        begun = self._held[0]
                        if not begun.lost:
                            yield begun
                            await self._call(begun, "resolve")
                        begun, self._held = None, self._held[1:]
            finally:
                for held in self._held:
                    await self._call(held, *(("release", LEFT) if held is begun else ("hand_back",)))
                beats.cancel()
                await asyncio.wait([beats])
                await asyncio.get_running_loop().run_in_executor(thread, connections.close_all)

    async def _next_claims(self) -> list[Any]:
        """Return claims once there are some, or an empty list once the loop is stopped."""
        pause = MIN_PAUSE
        while not self.stopped:
            try:
                if found := await self._whole(self._waited()):
                    return found
                pause = MIN_PAUSE
            except self.passing_errors as error:
                self._tell("tasks.consumer_claim_failed", error=error)
                await sync_to_async(self.recover)()
                pause = min(MAX_PAUSE, 2 * pause)
                await self._pause(pause)
        return []

    async def _waited(self) -> list[Any]:
        await sync_to_async(_check_wait)(self._queue, MAX_WAIT)
        if found := await self._take():
            return found
        wait = partial(auntil_some, woken=self._woken, stopped=lambda: self.stopped)
        return (await wait(self._take, self._queue, MAX_WAIT))[0]

    async def _whole(self, taking: Coroutine[object, object, list[Any]]) -> list[Any]:
        """Await claims. If this task is cancelled, the claiming thread goes on, so keep its claims for hand-back."""
        work = asyncio.ensure_future(taking)
        try:
            return list(await asyncio.shield(work))
        except asyncio.CancelledError:
            self.stop()
            self._held = await work
            raise

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._woken and not self.stopped and (left := end - time.monotonic()) > 0:
            await self._woken.wait(left)

    async def _attempt(self, held: TaskClaim, handle: Callable[[Any], Awaitable[Any]]) -> None:
        while True:
            try:
                result = await self._called(held, handle)
            except Exception as error:  # noqa: BLE001 - whatever the function raises is the end of this attempt alone
                if self._is_last(held, error) or not await self._counted(held):
                    return await self._call(held, "fail", error)
                await self._pause(self.local_delay)
            else:
                return await self._resolve(held, result)

    async def _counted(self, held: TaskClaim) -> bool:
        """Count an error with the task; return whether this worker tries again."""
        await self._call(held, "note_error")
        return self._may_retry(held)

    async def _called(self, held: TaskClaim, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        self._work = asyncio.ensure_future(handle(held))
        try:
            return await self._work
        except asyncio.CancelledError as error:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise
            if not held.lost:
                # The function itself raised it, or something that it awaits was cancelled.
                raise passable(error) from error
            raise LeaseLost(f"task {held.task.pk} was cancelled because its claim is lost") from None
        finally:
            self._work = None

    async def _resolve(self, held: TaskClaim, result: Json) -> None:
        try:
            await self._call(held, "resolve", result)
        except TaskError as error:
            await self._call(held, "fail", error)

    async def _call(self, held: TaskClaim, verb: str, *arguments: object) -> None:
        """Call a method of the claim unless it has ended; repeat the call while the lease lasts."""
        while not held.ended and not held.lost:
            try:
                return await sync_to_async(getattr(held, verb))(*arguments)
            except self.lost_errors:
                break
            except self.passing_errors as error:
                self._tell("tasks.consumer_call_failed", held, error)
                await sync_to_async(self.recover)()
                await asyncio.sleep(MIN_PAUSE)
        if not held.ended:
            self._tell("tasks.consumer_claim_lost", held)
        return None

    async def _beat(self, thread: ThreadPoolExecutor) -> None:
        loop, pause = asyncio.get_running_loop(), None
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
                self._changed.clear()
            except TimeoutError:
                pass
            due = [held for held in self._alive() if held.heartbeat_due <= time.monotonic()]
            failed = [held for held in due if not await loop.run_in_executor(thread, self._sent_heartbeat, held)]
            if self._work is not None and self._held[0].lost:
                self._work.cancel()
            pause = self._until_heartbeat(failed=bool(failed))


def _check_wait(queue: QueueRow, wait: float) -> None:
    """Raise ``TaskError`` for a wait that is not a duration, or inside a transaction, which would keep its locks."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_SECONDS:
        raise TaskError(f"wait={wait!r} must be a number of seconds from 0 to {MAX_SECONDS:.0f}")
    if not wait:
        return
    try:
        with transaction.atomic(using=queue._state.db, durable=True):
            pass
    except RuntimeError:
        raise TaskError("waiting for tasks inside a transaction would keep its locks; wait outside of it") from None
