"""What is running: starts attempts where there is room, and ends those that take too long."""

import asyncio
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from stator.conf import Settings
from stator.db import Operations
from stator.db.claim import Claim
from stator.graph import State
from stator.outcomes import Outcome, Released
from stator.worker.executor import Attempted, attempt_async, attempt_sync, calls_of, timed_out
from stator.worker.threads import HandlerThreads

logger = logging.getLogger("stator.worker")

# How long a cancelled coroutine may take to end before it is abandoned.
GRACE = 2.0

# For so long handlers that never suspend may follow each other before the event loop gets its turn.
SLICE = 0.005

# Short synchronous handlers are claimed ahead for about so many seconds of work per thread.
AHEAD = 0.05
MOST_AHEAD = 50


class Attempt:
    """One call of a handler on its way: its claims, the task it runs in when it is asynchronous and has begun, since
    when it is cancelled.
    """

    __slots__ = ("cancelled_at", "claims", "is_async", "left", "task")

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.left = len(claims)
        self.is_async = claims[0].state.is_async
        self.task: asyncio.Task[None] | None = None
        self.cancelled_at: float | None = None


class Slots:
    """The attempts of one process. Lives on the event loop.

    ``done`` gets each claim with its outcome, once; ``recorded`` what was recorded in the transaction of its handler.
    ``running`` maps the ``id()`` of a claim to the claim. A synchronous attempt waits for, or is in, a handler thread.
    An asynchronous one waits for a task, or is in one: a task attempts one object after another for as long as their
    handlers do not suspend, for a task of its own would cost more than a short handler.
    """

    def __init__(
        self,
        settings: Settings,
        done: Callable[[Claim, Outcome], None],
        recorded: Callable[[Operations, Attempted], None],
    ) -> None:
        self.settings = settings
        self.running: dict[int, Claim] = {}
        self.stuck: set[int] = set()
        self._done = done
        self._recorded = recorded
        self._attempts: dict[int, Attempt] = {}
        self._queue: deque[Attempt] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: asyncio.Task[None] | None = None
        self._context = Context()
        self._turned = 0.0
        self._turning = False
        self._count = 0
        self._threaded = 0
        self._per_model: Counter[str] = Counter()
        self._calls = calls_of(settings)
        run = partial(attempt_sync, calls=self._calls)
        self._threads = HandlerThreads(settings.THREADS, run, self._finish_sync)
        self._sync_runtime = AHEAD

    def start(self) -> None:
        """Start the handler threads; call it on the event loop."""
        self._threads.start()

    def room(self, label: str, is_async: bool, batch: int = 1) -> int:
        """How many more rows of this model, attempted ``batch`` at a time on the loop or in threads, may be claimed."""
        room = self.settings.CONCURRENCY - self._count
        if self.settings.CONCURRENCY_PER_MODEL:
            room = min(room, self.settings.CONCURRENCY_PER_MODEL - self._per_model[label])
        if not is_async:
            room = min(room, self._thread_room() if batch == 1 else self._free_threads())
        return max(0, min(room * batch, max(self.settings.BATCH_SIZE, batch)))

    def begin(self, claims: list[Claim]) -> None:
        """Start the attempts for these claims."""
        attempts = [Attempt(group) for group in grouped(claims)]
        for attempt in attempts:
            self._count += 1
            self._per_model[attempt.claims[0].operations.label] += 1
            for claim in attempt.claims:
                self.running[id(claim)] = claim
                self._attempts[id(claim)] = attempt
        self._queue.extend(attempt for attempt in attempts if attempt.is_async)
        # That of the caller, which knows the thread where handlers reach the database; no handler has touched it.
        self._context = copy_context()
        self._have_spare_task()
        threaded = [attempt.claims for attempt in attempts if not attempt.is_async]
        self._threaded += len(threaded)
        self._threads.submit(threaded)

    def sweep(self) -> None:
        """End attempts past their time limit or their lease; abandon cancelled ones that do not end."""
        now = time.monotonic()
        for key, claim in list(self.running.items()):
            attempt = self._attempts.get(key)
            if attempt is None:
                continue
            if claim.started and now - claim.started > claim.max_runtime:
                self._overrun(attempt)
            elif now > claim.deadline:
                self._cancel(attempt, "lease")
            if attempt.cancelled_at is not None and now - attempt.cancelled_at > GRACE:
                self._abandon(attempt)

    def cancel_ended(self, keys: set[int]) -> None:
        """Cancel attempts of which every claim has ended: whatever they would write is refused."""
        for attempt in {id(self._attempts[key]): self._attempts[key] for key in keys if key in self._attempts}.values():
            if all(id(claim) in keys for claim in attempt.claims):
                self._cancel(attempt, "lease")

    def hand_back(self) -> None:
        """Release the claims whose attempt has not begun."""
        waiting = [attempt.claims for attempt in self._queue]
        self._queue.clear()
        for claims in (*waiting, *self._threads.take_back()):
            for claim in claims:
                self._end(claim, Released())

    def cancel_all(self) -> None:
        """Cancel every asynchronous attempt."""
        for attempt in list(self._attempts.values()):
            self._cancel(attempt, "shutdown")

    def release_all(self) -> None:
        """Give up whatever still runs: its rows are released, and what it returns later is dropped."""
        for claim in list(self.running.values()):
            self._give_up(claim, Released())

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

    def _free_threads(self) -> int:
        return self.settings.THREADS - len(self.stuck) - self._threaded

    def _thread_room(self) -> int:
        able = self.settings.THREADS - len(self.stuck)
        ahead = max(1, min(MOST_AHEAD, int(AHEAD / max(self._sync_runtime, 1e-6))))
        room = able * ahead - self._threaded
        # While threads have work ahead of them, claims wait until they are worth their statement.
        return room if ahead == 1 or room >= able * ahead // 2 else 0

    def _have_spare_task(self) -> None:
        """Have one task that will take from the queue on the loop's next turn, whatever the running ones do."""
        if self._queue and self._spare is None:
            task = asyncio.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._spare = task

    async def _work(self) -> None:
        """Attempt one object after another. One whose handler suspends leaves the others to the spare task."""
        task, context = self._spare, copy_context()
        self._spare = None
        while await self._turn_in_time() and self._queue:
            attempt = self._queue.popleft()
            self._have_spare_task()
            attempt.task = task
            self._finish(await attempt_async(attempt.claims, self._calls))
            if self._is_spent(attempt, context):
                break
        self._have_spare_task()

    async def _turn_in_time(self) -> bool:
        """Let the loop turn where handlers have held it for long; True."""
        while time.monotonic() - self._turned > SLICE:
            if not self._turning:
                self._turning = True
                asyncio.get_running_loop().call_soon(self._note_turn)
            await asyncio.sleep(0)
        return True

    def _note_turn(self) -> None:
        self._turned = time.monotonic()
        self._turning = False

    @staticmethod
    def _is_spent(attempt: Attempt, context: Context) -> bool:
        """Whether a handler left something behind in its task that the next one must not find."""
        cancelled = attempt.cancelled_at is not None or (attempt.task is not None and attempt.task.cancelling())
        return bool(cancelled) or copy_context() != context

    def _finish_sync(self, claims: list[Claim], attempted: Attempted) -> None:
        self.stuck.discard(id(claims[0]))
        # A moving average, so that one slow handler makes the next claims smaller at once.
        took = time.monotonic() - claims[0].started
        self._sync_runtime = max(took, 0.9 * self._sync_runtime + 0.1 * took)
        if claims[0].state.atomic:
            self._recorded(claims[0].operations, attempted)
        self._finish(attempted)
        for claim in claims:
            self._forget(claim)

    def _finish(self, attempted: Attempted) -> None:
        for claim, outcome in attempted.ended:
            self._end(claim, outcome)

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        # Unless it was given up before: then its row may be somebody else's by now.
        if self._forget(claim):
            self._done(claim, outcome)

    def _forget(self, claim: Claim) -> bool:
        key = id(claim)
        if self.running.pop(key, None) is None:
            return False
        attempt = self._attempts.pop(key)
        attempt.left -= 1
        if not attempt.left:
            self._count -= 1
            self._threaded -= not attempt.is_async
            self._per_model[claim.operations.label] -= 1
        # The claim and its instance refer to each other; without this only the garbage collector would free them.
        claim.instance = None
        return True

    def _overrun(self, attempt: Attempt) -> None:
        if attempt.is_async:
            self._cancel(attempt, "max_runtime")
            return
        logger.warning("stator.handler_stuck", extra=_fields(attempt.claims[0]))
        self.stuck.add(id(attempt.claims[0]))
        for claim in attempt.claims:
            self._give_up(claim, timed_out(claim))

    def _cancel(self, attempt: Attempt, why: str) -> None:
        if not attempt.is_async or attempt.cancelled_at is not None:
            return
        for claim in attempt.claims:
            claim.cancelled_for = why
        attempt.cancelled_at = time.monotonic()
        if attempt.task is not None:
            attempt.task.cancel()
            return
        self._queue.remove(attempt)
        for claim in attempt.claims:
            self._end(claim, Released())

    def _abandon(self, attempt: Attempt) -> None:
        logger.warning("stator.attempt_abandoned", extra=_fields(attempt.claims[0]))
        for claim in attempt.claims:
            self._give_up(claim, timed_out(claim) if claim.cancelled_for == "max_runtime" else Released())

    def _give_up(self, claim: Claim, outcome: Outcome) -> None:
        self._calls.given_up(claim, outcome)
        self._end(claim, outcome)


def grouped(claims: list[Claim]) -> Iterator[list[Claim]]:
    """The claims by attempt: each by itself, or as many of one state as its ``batch`` says."""
    batches: dict[State, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.state.batch:
            batches[claim.state].append(claim)
        else:
            yield [claim]
    for state, group in batches.items():
        size = state.batch or 1
        yield from (group[start : start + size] for start in range(0, len(group), size))


def _fields(claim: Claim) -> dict[str, Any]:
    return {"model": claim.operations.label, "pk": str(claim.pk), "state": claim.state.name}
