"""The loops of named workers: ``queue.consume()`` and ``queue.aconsume()``."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from asgiref.sync import sync_to_async
from django.db import connections

from stator.claims import OUTAGES
from stator.exceptions import Fail, LeaseLost, passable
from stator.scopes import Scope
from tasks.client.consuming import ConsumerLoop, Loop, Result
from tasks.queue.held_claims import TaskClaim
from tasks.queue.waiting import AsyncWake, ClaimOptions, auntil_some, check_wait, claim
from tasks.rows.databases import scope_of

if TYPE_CHECKING:
    from tasks.models import Queue

# Seconds after which a waiting loop asks for tasks again, so that its worker counts as live.
MAX_WAIT = 20.0


class LoopOptions(TypedDict, total=False):
    """The options of a loop, but for its worker."""

    limit: int
    lease: float | None
    metadata: Mapping[str, object] | None
    local_retries: int
    local_delay: float


class LoopOfQueue(Loop[TaskClaim]):
    """The common part of the loops on one queue."""

    lost_errors = (LeaseLost,)
    passing_errors = OUTAGES
    final_errors = (Fail,)

    def __init__(
        self,
        queue: "Queue",
        *,
        worker: str,
        limit: int = 1,
        lease: float | None = None,
        metadata: Mapping[str, object] | None = None,
        local_retries: int = 0,
        local_delay: float = 1.0,
    ) -> None:
        super().__init__(local_retries=local_retries, local_delay=local_delay)
        self._queue = queue
        self._wanted: ClaimOptions = {"worker": worker, "limit": limit, "lease": lease, "metadata": metadata}

    def recover(self) -> None:
        """Close the broken connections of this thread."""
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def for_thread(self, beat: Callable[[], None]) -> Callable[[], None]:
        """Let heartbeats find the tasks in the schema where they were claimed."""
        return partial(_within, scope_of(self._queue), beat)

    def leave_thread(self) -> None:
        """Close the connections of the thread that sent heartbeats."""
        connections.close_all()


def _within(scope: Scope, function: Callable[[], None]) -> None:
    with scope.enter():
        function()


class QueueLoop(LoopOfQueue, ConsumerLoop[TaskClaim]):
    """The loop of a named worker on one queue.

    Errors of the database do not end it: they are logged, and the statement is repeated.

    ``limit``: how many tasks it claims at once; it renews the leases of all of them while it works on one after the
    other.
    ``local_retries``: how many times ``run`` calls its function again after an error other than ``Fail``, unless the
    task sets this itself.
    ``local_delay``: the seconds before each of these calls.
    """

    def take(self) -> list[TaskClaim]:
        """Claim tasks; wait for some."""
        return claim(self._queue, MAX_WAIT, **self._wanted, stopped=lambda: self.stopped)


class AsyncQueueLoop(LoopOfQueue):
    """The loop of a named worker for ``async for`` and ``await run``; a thread of its own sends the heartbeats.

    If you leave the body of an ``async for`` by an error or by ``break``, Python closes the loop only some time later.
    To release the claim at once, use ``run``, or iterate over ``contextlib.aclosing(loop.claims())``.
    """

    _woken: AsyncWake | None = None
    _work: asyncio.Future[object] | None = None

    def stop(self) -> None:
        """Claim nothing more, and end after the current task. Any thread and any signal handler may call this."""
        super().stop()
        if self._woken is not None:
            self._woken.set()

    async def run(self, handle: Callable[[TaskClaim], Awaitable[object]]) -> None:
        """Await ``handle(claim)`` for each task until the loop is stopped; what it returns is the task's result.

        If ``handle`` still raises after all local retries, the attempt fails with that error and the loop goes on. If
        it ends the claim itself, nothing else is done. If the claim is lost, ``handle`` is cancelled.
        """
        async with aclosing(self.claims()) as claims:
            async for held in claims:
                await self._attempt(held, handle)

    def __aiter__(self) -> AsyncIterator[TaskClaim]:
        return self.claims()

    def claims(self) -> AsyncGenerator[TaskClaim, None]:
        """Yield claims until the loop is stopped."""
        return self._claims()

    async def _take(self) -> list[TaskClaim]:
        # If this task is cancelled, the claiming thread goes on, so keep its claims for hand-back.
        work = asyncio.ensure_future(self._waited())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            self._held = await work
            raise

    async def _waited(self) -> list[TaskClaim]:
        self._woken = AsyncWake()
        await sync_to_async(check_wait)(self._queue, MAX_WAIT)
        take = partial(sync_to_async(claim), self._queue, 0.0, **self._wanted)
        if claims := await take():
            return list(claims)
        wait = partial(auntil_some, woken=self._woken, stopped=lambda: self.stopped)
        return (await wait(take, self._queue, MAX_WAIT))[0]

    async def _do(self, function: Callable[..., Result], *arguments: object) -> Result:
        return await sync_to_async(function)(*arguments)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _outcome(self, claim: TaskClaim, handle: Callable[[TaskClaim], Any]) -> tuple[object, Exception | None]:
        try:
            return await self._called(claim, handle), None
        except Exception as error:  # noqa: BLE001 - whatever the function raises is the end of this attempt alone
            return None, error

    async def _called(self, held: TaskClaim, handle: Callable[[TaskClaim], Awaitable[object]]) -> object:
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
            raise LeaseLost(f"{held!r} was cancelled because it is lost") from None
        finally:
            self._work = None

    def after_heartbeats(self) -> None:
        """Cancel the function if its claim is lost."""
        if (work := self._work) is not None and not (loop := work.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._cancel_if_lost)

    def _cancel_if_lost(self) -> None:
        if self._work is not None and self._held[0].lost:
            self._work.cancel()
