"""What is running: starts attempts where there is room, and ends those that take too long."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from stator.conf import Settings
from stator.db.claim import Claim
from stator.outcomes import Outcome, Released
from stator.worker.executor import attempt_async, attempt_sync, timed_out
from stator.worker.threads import HandlerThreads

logger = logging.getLogger("stator.worker")

# How long a cancelled coroutine may take to end before it is abandoned.
GRACE = 2.0

# Short synchronous handlers are claimed ahead for about so many seconds of work per thread.
AHEAD = 0.05
MOST_AHEAD = 50


class Slots:
    """The attempts of one process. Lives on the event loop; ``done`` gets each claim with its outcome, once.

    ``running`` maps the ``id()`` of a claim to the claim. An asynchronous attempt is a task; a synchronous one waits
    for, or is in, a handler thread.
    """

    def __init__(self, settings: Settings, done: Callable[[Claim, Outcome], None]) -> None:
        self.settings = settings
        self.running: dict[int, Claim] = {}
        self.per_model: Counter[str] = Counter()
        self.sync_running = 0
        self.stuck: set[int] = set()
        self._done = done
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled_at: dict[int, float] = {}
        self._threads = HandlerThreads(settings.THREADS, attempt_sync, self._finish_sync)
        self._sync_runtime = AHEAD

    def start(self) -> None:
        """Start the handler threads; call it on the event loop."""
        self._threads.start()

    def room(self, label: str, is_async: bool) -> int:
        """How many more attempts of this model, on the loop or in threads, may be claimed now."""
        room = self.settings.CONCURRENCY - len(self.running)
        if self.settings.CONCURRENCY_PER_MODEL:
            room = min(room, self.settings.CONCURRENCY_PER_MODEL - self.per_model[label])
        if not is_async:
            room = min(room, self._thread_room())
        return max(0, min(room, self.settings.BATCH_SIZE))

    def begin(self, claims: list[Claim]) -> None:
        """Start an attempt for each claim."""
        threaded = []
        for claim in claims:
            key = id(claim)
            self.running[key] = claim
            self.per_model[claim.operations.label] += 1
            if claim.state.is_async:
                self._tasks[key] = asyncio.create_task(self._attempt(claim))
            else:
                threaded.append(claim)
        self.sync_running += len(threaded)
        self._threads.submit(threaded)

    def sweep(self) -> None:
        """End attempts past their time limit or their lease; abandon cancelled ones that do not end."""
        now = time.monotonic()
        for key, claim in list(self.running.items()):
            if claim.started and now - claim.started > claim.max_runtime:
                self._overrun(key, claim)
            elif now > claim.deadline and claim.cancelled_for is None:
                self._cancel(key, claim, "lease")
            if now - self._cancelled_at.get(key, now) > GRACE:
                self._abandon(key, claim)

    def cancel_ended(self, keys: set[int]) -> None:
        """Cancel attempts whose claim has ended: whatever they would write is refused."""
        for key in keys:
            if claim := self.running.get(key):
                self._cancel(key, claim, "lease")

    def hand_back(self) -> None:
        """Release the claims whose attempt has not begun."""
        for claim in self._threads.take_back():
            self._end(claim, Released())

    def cancel_all(self) -> None:
        """Cancel every asynchronous attempt."""
        for key, claim in list(self.running.items()):
            self._cancel(key, claim, "shutdown")

    def release_all(self) -> None:
        """Give up whatever still runs: its rows are released, and what it returns later is dropped."""
        for claim in list(self.running.values()):
            self._end(claim, Released())

    def stop(self) -> None:
        """Have the handler threads end."""
        self._threads.stop()

    def join(self, timeout: float) -> None:
        """Wait for idle handler threads to end; those with a stuck handler are left behind."""
        if not self.stuck:
            self._threads.join(timeout)

    @property
    def all_stuck(self) -> bool:
        """Whether every handler thread is held by an attempt that was given up."""
        return len(self.stuck) >= self.settings.THREADS

    def _thread_room(self) -> int:
        free = self.settings.THREADS - len(self.stuck)
        ahead = max(1, min(MOST_AHEAD, int(AHEAD / max(self._sync_runtime, 1e-6))))
        return free * ahead - self.sync_running

    async def _attempt(self, claim: Claim) -> None:
        self._end(claim, await attempt_async(claim))

    def _finish_sync(self, claim: Claim, outcome: Outcome) -> None:
        self.stuck.discard(id(claim))
        # A moving average, so that one slow handler makes the next claims smaller at once.
        took = time.monotonic() - claim.started
        self._sync_runtime = max(took, 0.9 * self._sync_runtime + 0.1 * took)
        self._end(claim, outcome)

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        key = id(claim)
        if self.running.pop(key, None) is None:
            # Given up before; its row may be somebody else's by now.
            return
        self._tasks.pop(key, None)
        self._cancelled_at.pop(key, None)
        self.per_model[claim.operations.label] -= 1
        if not claim.state.is_async:
            self.sync_running -= 1
        # The claim and its instance refer to each other; without this only the garbage collector would free them.
        claim.instance = None
        self._done(claim, outcome)

    def _overrun(self, key: int, claim: Claim) -> None:
        if claim.state.is_async:
            self._cancel(key, claim, "max_runtime")
            return
        logger.warning("stator.handler_stuck", extra=_fields(claim))
        self.stuck.add(key)
        self._end(claim, timed_out(claim))

    def _cancel(self, key: int, claim: Claim, why: str) -> None:
        task = self._tasks.get(key)
        if task is None or claim.cancelled_for is not None:
            return
        claim.cancelled_for = why
        self._cancelled_at[key] = time.monotonic()
        task.cancel()

    def _abandon(self, key: int, claim: Claim) -> None:
        logger.warning("stator.attempt_abandoned", extra=_fields(claim))
        outcome = timed_out(claim) if claim.cancelled_for == "max_runtime" else Released()
        self._end(claim, outcome)


def _fields(claim: Claim) -> dict[str, Any]:
    return {"model": claim.operations.label, "pk": str(claim.pk), "state": claim.state.name}
