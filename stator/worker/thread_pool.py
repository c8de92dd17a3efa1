"""Threads for handlers, actions and calls of event loops. They are daemons: no call keeps the process."""

import asyncio
import itertools
import operator
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

from stator.exceptions import NotBegun
from stator.worker.connections import check_rested_connections, clean_connections, own_connections
from stator.worker.threads import STOP, call_soon, settle

Params = ParamSpec("Params")
Result = TypeVar("Result")

# Seconds after which an unneeded thread ends and closes its connections; it may take up to twice as long.
NEEDED_FOR = 30.0

# Threads for calls of an event loop, as many as asyncio has.
LOOP_THREADS = min(32, (os.cpu_count() or 1) + 4)

# Seconds that the end of a worker waits for database calls of asynchronous handlers, and for threads without a call.
CLOSING_TIME = 2.0


class Call:
    """A call of ``function`` with ``argument`` in a thread; after it, ``end`` gets this object on the event loop.

    ``since``: when it began to wait for a thread, 0 before; infinite if it is never handed back.
    """

    __slots__ = ("argument", "begun", "end", "ended", "error", "function", "given_up", "result", "since")

    ended: "EndedCalls"

    def __init__(self, function: Callable[[Any], object], argument: Any, end: Callable[["Call"], object]) -> None:
        self.function, self.argument, self.end = function, argument, end
        self.since = 0.0
        self.begun = self.given_up = False
        self.result: Any = None
        self.error: BaseException | None = None


class EndedCalls:
    """Calls that threads have ended; one event loop is woken for all of them that it has not seen yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self._calls: deque[Call] = deque()
        self._waking = False

    def add(self, call: Call) -> None:
        """Have the loop end a call."""
        self._calls.append(call)
        if not self._waking:
            self._waking = True
            call_soon(self.loop, self._deliver)

    def _deliver(self) -> None:
        # Reset before the calls are read, so that later ones wake the loop again.
        self._waking = False
        while self._calls:
            call = self._calls.popleft()
            call.end(call)


class ThreadPool:
    """Up to ``count`` threads with their own connections; a free thread takes the next call, so a slow one delays none.

    Threads that were not needed for a while end. So there are as many threads as calls were lately in progress at once.

    A call that is given up after it has begun runs on, because it cannot be ended. Its thread is then abandoned and
    replaced, up to ``count`` times.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self.threads: set[threading.Thread] = set()
        self._name, self._numbers = name, itertools.count()
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._ended = EndedCalls()
        self._lock = threading.Lock()
        # Without abandoned threads: the calls that wait or run, and the threads.
        self._calls = self._serving = 0
        # The most calls at once in this period, and in this and the last one.
        self._peak = self._wanted = 0
        self._until = time.monotonic() + NEEDED_FOR
        self._abandoned = 0
        # Whether ``count`` abandoned calls are still running, so that no thread is replaced any more.
        self.exhausted = False
        self._exhausted_since = 0.0
        self._stopped = False

    @property
    def idle(self) -> bool:
        """Whether no call waits or runs, except for abandoned ones."""
        return not self._calls

    def are_exhausted_for(self, seconds: float) -> bool:
        """Return whether the pool has been exhausted for this many seconds."""
        return self.exhausted and time.monotonic() - self._exhausted_since >= seconds

    async def run(self, function: Callable[[], Result], *, must_begin: bool = False) -> Result:
        """Call ``function`` in a thread, in a copy of this context; return its result or raise its error.

        If this is cancelled, the call is given up. ``must_begin``: it is never handed back.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        call = Call(copy_context().run, function, partial(_settle, future))
        if must_begin:
            call.since = float("inf")
        self.submit([call])
        try:
            return await future
        except asyncio.CancelledError:
            self.give_up(call)
            raise

    def submit(self, calls: Sequence[Call]) -> None:
        """Have each call run as soon as a thread is free; their results come to the running event loop."""
        loop = asyncio.get_running_loop()
        ended = self._ended = self._ended if self._ended.loop is loop else EndedCalls(loop)
        now = time.monotonic()
        for call in calls:
            call.ended, call.since = ended, call.since or now
            self._queue.put(call)
        with self._lock:
            self._calls += len(calls)
            self._peak = max(self._peak, self._calls)
            if self._serving < self.count:
                self._start_threads()

    def take_back(self, which: Callable[[Call], bool] = lambda call: True) -> list[Call]:
        """Return calls that no thread has begun, which will not run; ``which``: only some of them."""
        waiting: list[Call | None] = []
        # A check for emptiness would not do: a thread may take the last item in between, and get() would wait forever.
        with suppress(Empty):
            while True:
                waiting.append(self._queue.get_nowait())
        taken = []
        for call in waiting:
            if call is not None and which(call):
                taken.append(call)
            else:
                self._queue.put(call)
        with self._lock:
            self._calls -= len(taken)
        return taken

    def hand_back(self, waiting_since: float) -> bool:
        """Raise ``NotBegun`` for calls of :meth:`run` that have waited since before that time; return whether any did.

        Call it on the event loop.
        """
        late = self.take_back(lambda call: call.since < waiting_since)
        for call in late:
            call.error = NotBegun(0.0, "")
            call.end(call)
        return bool(late)

    def rest(self, *, at_once: bool = False) -> None:
        """End threads that were not needed for a while, or all that have no call ``at_once``; called now and then."""
        if time.monotonic() < self._until and not at_once:
            return
        with self._lock:
            self._until = time.monotonic() + NEEDED_FOR
            self._wanted, self._peak = self._calls if at_once else max(self._peak, self._calls), self._calls
            for _ in range(self._serving - self._wanted):
                self._queue.put(STOP)

    def stop(self) -> None:
        """Make each thread end after its current call."""
        self._stopped = True
        for _ in list(self.threads):
            self._queue.put(STOP)

    def join(self, timeout: float) -> None:
        """Wait for the threads to end, for at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for thread in list(self.threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start_threads(self) -> None:
        while self._serving < min(self._calls, self.count):
            self._serving += 1
            name = f"{self._name}-{next(self._numbers)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self.threads.add(thread)
            thread.start()

    def give_up(self, call: Call) -> None:
        """Wait for a call no longer: it is not begun any more, or its thread is abandoned."""
        with self._lock:
            call.given_up = True
            # A call that has not begun is skipped by the thread that takes it.
            if call.begun and not self.exhausted:
                self._abandoned += 1
                self.exhausted = self._abandoned >= self.count
                self._calls -= 1
                self._serving -= 1
                self._exhausted_since = time.monotonic()
                self._start_threads()
            else:
                call.begun = False

    def _work(self) -> None:
        own_connections()
        while self._turn():
            pass
        connections.close_all()
        self.threads.discard(threading.current_thread())

    def _turn(self) -> bool:
        """Run one call; return whether the thread continues."""
        call = self._queue.get()
        if call is None:
            return not self._may_end()
        with self._lock:
            call.begun = not call.given_up
            if not call.begun:
                self._calls -= 1
                return True
        check_rested_connections()
        try:
            call.result = call.function(call.argument)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            call.error = error
        clean_connections()
        with self._lock:
            # A thread that was abandoned and replaced ends. A thread that could not be replaced continues.
            is_replaced = call.given_up and call.begun
            call.begun = False
            if is_replaced:
                self._abandoned -= 1
                self.exhausted = False
            self._calls -= not is_replaced
        call.ended.add(call)
        return not is_replaced

    def _may_end(self) -> bool:
        with self._lock:
            # More calls may have arrived since.
            if self._serving <= max(self._wanted, min(self._calls, self.count)) and not self._stopped:
                return False
            self._serving -= 1
            return True


def _settle(future: asyncio.Future[Result] | Future[Result], call: Call) -> None:
    # The usual end costs one call.
    if call.error is None and not future.done():
        future.set_result(call.result)
    else:
        settle(future, call.result, call.error)


class LoopThreads(ThreadPoolExecutor):
    """The default executor of an event loop, of the only class that asyncio takes: ``pool`` has the threads."""

    def __init__(self, pool: ThreadPool) -> None:
        super().__init__(1)
        self._pool = pool

    def submit(
        self, function: Callable[Params, Result], /, *args: Params.args, **kwargs: Params.kwargs
    ) -> Future[Result]:
        """Call a function as the pool does: it finds usable connections, and leaves none in a transaction."""
        future: Future[Result] = Future()
        call = Call(operator.call, partial(function, *args, **kwargs), partial(_settle, future))
        future.add_done_callback(partial(self._ended, call))
        self._pool.submit([call])
        return future

    def _ended(self, call: Call, future: Future[Result]) -> None:
        if future.cancelled():
            self._pool.give_up(call)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Make the threads end, each after its current call."""
        self._pool.stop()


@asynccontextmanager
async def database_thread_for_handlers() -> AsyncIterator[ThreadPool]:
    """Give asynchronous handlers a database thread that ends with this context and closes its connections.

    Otherwise Django uses one thread for the whole process, which would keep its connections forever. Code that handlers
    run in further threads, by ``asyncio.to_thread()`` or ``sync_to_async(thread_sensitive=False)``, finds usable
    connections too: those are the threads of the pool.
    """
    pool = ThreadPool(LOOP_THREADS, "stator-loop")
    asyncio.get_running_loop().set_default_executor(LoopThreads(pool))
    context = ThreadSensitiveContext()
    await context.__aenter__()
    try:
        # The thread's session is not watched, because all asynchronous handlers share it.
        await sync_to_async(own_connections)(watch=False)
        yield pool
    finally:
        closing = asyncio.ensure_future(sync_to_async(connections.close_all)())
        await asyncio.wait([closing], timeout=CLOSING_TIME)
        if closing.done():
            await context.__aexit__(None, None, None)
        # If the call is not done, a handler's call does not end, and waiting for its thread would take as long.
        pool.stop()
        if pool.idle:
            pool.join(CLOSING_TIME)
