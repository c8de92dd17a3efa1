"""Threads for synchronous handlers. They are daemons: a handler that never returns must not keep the process."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from django.db import connections

from stator.worker.connections import check_rested_connections, clean_connections, own_connections
from stator.worker.threads import STOP, call_soon

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items of a queue that are not work.
SLEEP, WAKE = object(), object()

# Seconds after which an unneeded handler thread closes its connections and sleeps; it may take up to twice as long.
NEEDED_FOR = 30.0


class HandlerThreads(Generic[Item, Result]):
    """Threads that run synchronous handlers; a free thread takes the next claim, so a slow one holds up no other.

    ``run`` is called in a thread with each claim; its results go to ``done`` on the event loop, in batches. Threads
    that were not needed for a while close their connections and sleep. So as many threads are awake as claims were
    lately in progress at once.
    """

    def __init__(self, count: int, run: Callable[[Item], Result], done: Callable[[Item, Result], None]) -> None:
        self.count = count
        self._run = run
        self._done = done
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._wakeups: SimpleQueue[object] = SimpleQueue()
        self._finished: deque[tuple[Item, Result]] = deque()
        self._waking = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        # Submitted claims that are not done; their maximum in this period; the maximum of this period and the last.
        self._claims = self._peak = self._wanted = 0
        self._until = time.monotonic() + NEEDED_FOR
        self._awake = 0
        self._guard = threading.Lock()

    def start(self) -> None:
        """Start the threads asleep; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        for number in range(self.count):
            thread = threading.Thread(target=self._work, name=f"stator-handler-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, claims: list[Item]) -> None:
        """Submit claims; each runs as soon as a thread is free."""
        for claim in claims:
            self._queue.put(claim)
        self._claims += len(claims)
        self._peak = max(self._peak, self._claims)
        if self._awake < self.count and self._awake < self._claims:
            self._wake_up(min(self._claims, self.count))

    def take_back(self) -> list[Item]:
        """Return the claims that no thread has begun, which will not run."""
        claims = []
        # A check for emptiness would not do: a thread may take the last item in between, and get() would wait forever.
        with suppress(Empty):
            while True:
                claims.append(self._queue.get_nowait())
        claims = [claim for claim in claims if claim is not SLEEP]
        self._claims -= len(claims)
        return claims

    def rest(self) -> None:
        """Make threads sleep that were not needed for a while; called now and then."""
        if time.monotonic() < self._until:
            return
        self._until = time.monotonic() + NEEDED_FOR
        self._wanted, self._peak = max(self._peak, self._claims), self._claims
        for _ in range(self._awake - self._wanted):
            self._queue.put(SLEEP)

    def stop(self) -> None:
        """Make each thread end after its current claim."""
        for _ in self._threads:
            self._queue.put(STOP)
            self._wakeups.put(STOP)

    def join(self, timeout: float) -> None:
        """Wait for the threads to end, for at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wake_up(self, count: int) -> None:
        with self._guard:
            for _ in range(count - self._awake):
                self._wakeups.put(WAKE)
            self._awake = max(count, self._awake)

    def _work(self) -> None:
        own_connections()
        while self._wakeups.get() is not STOP and self._take():
            connections.close_all()
        connections.close_all()

    def _take(self) -> bool:
        """Run claims until this thread may sleep; return False when all threads end."""
        while (claim := self._queue.get()) is not STOP:
            if claim is not SLEEP:
                check_rested_connections()
                self._finished.append((claim, self._run(claim)))
                clean_connections()
                if not self._waking:
                    self._waking = True
                    call_soon(self._loop, self._deliver)
            elif self._may_sleep():
                return True
        return False

    def _may_sleep(self) -> bool:
        with self._guard:
            # More claims may have arrived since.
            if self._awake <= max(self._wanted, min(self._claims, self.count)):
                return False
            self._awake -= 1
            return True

    def _deliver(self) -> None:
        # Reset before the queue is read, so that later results wake the loop again.
        self._waking = False
        while self._finished:
            self._claims -= 1
            self._done(*self._finished.popleft())
