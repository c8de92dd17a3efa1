"""Running attempts: counts the places for them, starts them, and ends attempts that take too long."""

import asyncio
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from importlib import import_module

from stator.conf import Settings
from stator.db.interface import Claim, Operations
from stator.exceptions import passable
from stator.graph import State
from stator.graph.outcomes import Outcome, Released
from stator.worker.executor import PLAIN, Attempted, Calls, attempt_async, attempt_sync, outcomes_of, timed_out
from stator.worker.handler_threads import NEEDED_FOR, HandlerThreads

logger = logging.getLogger("stator.worker")

# Seconds that a cancelled coroutine has to end before it is abandoned.
GRACE = 2.0

# Seconds for which handlers that never suspend may follow each other before the event loop gets its turn.
SLICE = 0.002

# Seconds after which waiting claims that were made ahead are released: other workers may have room.
PATIENCE = 1.0

# Seconds of work per place for which short attempts are claimed ahead.
AHEAD = 0.05
MOST_AHEAD = 50

# A handler that is new or was slow gets nothing claimed ahead until the average of its run times has come down.
OLD_PART, NEW_PART = 0.9, 0.1


class Attempt:
    """One call of a handler in progress.

    ``placed``: whether it has a place on the loop. ``task``: that of an asynchronous handler that has begun.
    ``cancelled_at``: when it was cancelled.
    """

    __slots__ = ("cancelled_at", "claims", "is_async", "label", "left", "placed", "task")

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.left = len(claims)
        self.label = claims[0].operations.label
        self.is_async = claims[0].state.is_async
        self.placed = False
        self.task: asyncio.Task[None] | None = None
        self.cancelled_at: float | None = None


def grouped(claims: list[Claim]) -> Iterator[list[Claim]]:
    """Yield the claims of each attempt: one, or up to ``batch`` claims of one state."""
    batches: dict[State, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.state.batch:
            batches[claim.state].append(claim)
        else:
            yield [claim]
    for state, group in batches.items():
        size = state.batch or 1
        yield from (group[start : start + size] for start in range(0, len(group), size))


def calls_of(settings: Settings) -> Calls:
    """Return the functions with which a worker with these settings calls handlers."""
    # By name, because it needs a package that a project may not have.
    return import_module("stator.worker.tracing").traced() if settings.TRACING else PLAIN


class Room:
    """The places of one process: ``CONCURRENCY`` in all, of which handler threads take up to ``THREADS``.

    ``placed``: attempts on the loop that run or have a place. ``threaded``: attempts in handler threads or waiting for
    one; ``ahead_of_threads``: how many of them were claimed ahead. ``thread_freed``: when one last ended, or the first
    one came. ``stuck``: threads held by an attempt that was given up, by its first claim.

    If a model's attempts are short, more are claimed than there are places: a claim for each handful would cost more
    than the attempts. They displace nothing else: other attempts are claimed as if the waiting ones were not there.
    """

    def __init__(self, settings: Settings) -> None:
        self.placed = 0
        self.threaded = self.ahead_of_threads = 0
        self.thread_freed = 0.0
        self.stuck: set[int] = set()
        self._settings = settings
        self._per_model: Counter[str] = Counter()
        self._runtimes: dict[tuple[str, bool], float] = {}

    def rows(self, label: str, is_async: bool, batch: int, waiting: int) -> int:
        """Return how many more rows of this model may be claimed if they are attempted ``batch`` at a time.

        ``waiting``: attempts on the loop that have no place yet.
        """
        room = self._on_the_loop(label, batch, waiting) if is_async else self._in_threads(label, batch)
        if self._settings.CONCURRENCY_PER_MODEL:
            room = min(room, self._settings.CONCURRENCY_PER_MODEL - self._per_model[label])
        return max(0, min(room * batch, max(self._settings.BATCH_SIZE, batch)))

    @property
    def has_place(self) -> bool:
        """Whether one more attempt may begin on the loop."""
        # Inlined, because this is called before each attempt.
        threads = min(self.threaded, self._settings.THREADS - len(self.stuck)) if self.threaded else 0
        return self.placed + threads < self._settings.CONCURRENCY

    @property
    def threads(self) -> int:
        """The number of threads that are not stuck."""
        return self._settings.THREADS - len(self.stuck)

    def ahead(self, label: str, is_async: bool) -> int:
        """Return how many short attempts of a model there may be for each place."""
        return max(1, min(MOST_AHEAD, int(AHEAD / max(self._runtimes.get((label, is_async), AHEAD), 1e-6))))

    def took(self, label: str, is_async: bool, seconds: float) -> None:
        """Note how long an attempt took: a moving average that one slow handler raises at once."""
        key = label, is_async
        self._runtimes[key] = max(seconds, OLD_PART * self._runtimes.get(key, AHEAD) + NEW_PART * seconds)

    def enter(self, label: str, count: int) -> None:
        """Note that attempts of a model are claimed or, with a negative number, over."""
        self._per_model[label] += count

    def _on_the_loop(self, label: str, batch: int, waiting: int) -> int:
        free = self._settings.CONCURRENCY - self.placed - min(self.threaded, self.threads)
        ahead = self.ahead(label, True)
        if batch > 1 or ahead == 1 or free <= 0:
            return free
        # Enough for two claims, so that the next is in progress while the attempts of one run.
        most = min(self._settings.CONCURRENCY * ahead, max(self._settings.CONCURRENCY, 2 * self._settings.BATCH_SIZE))
        return _worth(most - waiting, most)

    def _in_threads(self, label: str, batch: int) -> int:
        free = self._settings.CONCURRENCY - self.placed
        ahead = self.ahead(label, False)
        if free < self.threads:
            return free - self.threaded
        if batch > 1 or ahead == 1:
            soon_over = time.monotonic() - self.thread_freed < 2 * AHEAD
            return self.threads - self.threaded + (self.ahead_of_threads if soon_over else 0)
        return _worth(self.threads * ahead - self.threaded, self.threads * ahead)


def _worth(room: int, most: int) -> int:
    # While attempts are waiting, claim only when the room is worth a statement.
    return room if room >= most // 2 else 0


class Attempts:
    """The attempts of one process. Lives on the event loop.

    ``done`` gets each claim with its outcome, once; ``recorded`` gets outcomes recorded in their handler's transaction.
    ``running`` maps the ``id()`` of a claim to the claim. A synchronous attempt waits for a handler thread or runs in
    one. An asynchronous attempt waits for a task or runs in one. A task runs one attempt after another as long as their
    handlers do not suspend, because a new task costs more than a short handler. Attempts claimed ahead wait for a place
    before that.
    """

    def __init__(
        self,
        settings: Settings,
        done: Callable[[Claim, Outcome], None],
        recorded: Callable[[Operations, Attempted], None],
    ) -> None:
        self.settings = settings
        self.running: dict[int, Claim] = {}
        self._done = done
        self._recorded = recorded
        self._room = Room(settings)
        self._attempts: dict[int, Attempt] = {}
        self._queue: deque[Attempt] = deque()
        # By model, in the order of their turns.
        self._ahead: dict[str, deque[Attempt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: asyncio.Task[None] | None = None
        self._context = Context()
        self._turned = 0.0
        # When an attempt that was claimed ahead last began, or the first of them arrived.
        self._began = 0.0
        self._calls = calls_of(settings)
        run = partial(attempt_sync, calls=self._calls)
        self._threads = HandlerThreads(settings.THREADS, run, self._finish_sync)

    def start(self) -> None:
        """Start the handler threads; call it on the event loop."""
        self._threads.start()

    def room(self, label: str, is_async: bool, batch: int = 1) -> int:
        """Return how many more rows of this model may be claimed, ``batch`` at a time, for the loop or for threads."""
        return self._room.rows(label, is_async, batch, sum(map(len, self._ahead.values())))

    def begin(self, claims: list[Claim]) -> None:
        """Start the attempts for these claims."""
        attempts = [Attempt(group) for group in grouped(claims)]
        for attempt in attempts:
            for claim in attempt.claims:
                self.running[id(claim)] = claim
                self._attempts[id(claim)] = attempt
        for label, count in Counter(attempt.label for attempt in attempts).items():
            self._room.enter(label, count)
        self._line_up(attempts)
        # The caller's context names the thread in which handlers reach the database; no handler has changed it.
        self._context = copy_context()
        self._have_spare_task()
        if threaded := [attempt.claims for attempt in attempts if not attempt.is_async]:
            self._threads.submit(threaded)

    def sweep(self) -> None:
        """End attempts past their time limit or lease; abandon cancelled ones that do not end."""
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
        self._hand_back_ahead(now)
        self._threads.rest()

    def cancel_ended(self, keys: set[int]) -> None:
        """Cancel attempts all of whose claims have ended: the database refuses their writes."""
        for attempt in {id(self._attempts[key]): self._attempts[key] for key in keys if key in self._attempts}.values():
            if all(id(claim) in keys for claim in attempt.claims):
                self._cancel(attempt, "lease")

    def hand_back(self) -> None:
        """Release the claims whose attempts have not begun."""
        waiting = [attempt.claims for line in (self._queue, *self._ahead.values()) for attempt in line]
        self._queue.clear()
        self._ahead.clear()
        self._release([*waiting, *self._threads.take_back()])

    def cancel_all(self) -> None:
        """Cancel all asynchronous attempts."""
        for attempt in list(self._attempts.values()):
            self._cancel(attempt, "shutdown")

    def release_all(self) -> None:
        """Give up running attempts: their rows are released, and later results are dropped."""
        for claim in list(self.running.values()):
            self._give_up(claim, Released())

    def stop(self) -> None:
        """Make the handler threads end."""
        self._threads.stop()

    def join(self, timeout: float) -> None:
        """Wait for idle handler threads to end; leave stuck ones behind."""
        if not self._room.stuck:
            self._threads.join(timeout)

    def trouble(self, patience: float = 0.0) -> str:
        """Return a sentence if given-up attempts hold every handler thread, else ""; ignores ``patience``."""
        return "every handler thread is held by a handler that does not return" if self._room.threads <= 0 else ""

    @property
    def loop_rests(self) -> bool:
        """Whether no asynchronous attempt was made for a while."""
        return not self._room.placed and time.monotonic() - self._turned > NEEDED_FOR

    def _line_up(self, attempts: list[Attempt]) -> None:
        """Give each attempt a place and a turn; those claimed ahead wait for both behind the others."""
        room = self._room
        kinds = {(attempt.label, attempt.is_async) for attempt in attempts}
        short = {kind: room.ahead(*kind) > 1 for kind in kinds}
        for attempt in attempts:
            is_ahead = short[attempt.label, attempt.is_async] and not attempt.claims[0].state.batch
            if not attempt.is_async:
                room.thread_freed = room.thread_freed if room.threaded else time.monotonic()
                attempt.placed = not is_ahead
                room.threaded += 1
                room.ahead_of_threads += is_ahead
            elif is_ahead or not room.has_place:
                self._began = self._began if self._ahead else time.monotonic()
                self._ahead.setdefault(attempt.label, deque()).append(attempt)
            else:
                self._place(attempt)
                self._queue.append(attempt)

    def _place(self, attempt: Attempt) -> None:
        attempt.placed = True
        self._room.placed += 1

    def _next(self) -> Attempt | None:
        """Return the next attempt to begin on the loop, if there is a place for it."""
        if self._queue:
            return self._queue.popleft()
        if not (self._ahead and self._room.has_place):
            return None
        # Models take turns, so that many attempts of one do not block few of another.
        label, line = next(iter(self._ahead.items()))
        attempt = line.popleft()
        if not line or len(self._ahead) > 1:
            del self._ahead[label]
            if line:
                self._ahead[label] = line
        self._began = time.monotonic()
        self._place(attempt)
        return attempt

    def _hand_back_ahead(self, now: float) -> None:
        """Release claims made ahead that could not begin, because something takes longer than before."""
        late: list[list[Claim]] = []
        for label, line in list(self._ahead.items()):
            if self._is_late(line[0].claims, now, self._began):
                late += [attempt.claims for attempt in self._ahead.pop(label)]
        if self._room.threaded > self._room.threads:
            in_time: list[list[Claim]] = []
            for claims in self._threads.take_back():
                (late if self._is_late(claims, now, self._room.thread_freed) else in_time).append(claims)
            self._threads.submit(in_time)
        for claims in late:
            self._room.took(claims[0].operations.label, claims[0].state.is_async, PATIENCE)
        self._release(late)

    def _is_late(self, claims: list[Claim], now: float, moved: float) -> bool:
        """Return whether attempts have waited too long: they are no longer short, or none has begun since ``moved``."""
        label, is_async = claims[0].operations.label, claims[0].state.is_async
        has_waited = now - claims[0].claimed > PATIENCE
        return has_waited and (now - moved > PATIENCE or self._room.ahead(label, is_async) == 1)

    def _release(self, waiting: list[list[Claim]]) -> None:
        for claims in waiting:
            for claim in claims:
                self._end(claim, Released())

    def _have_spare_task(self) -> None:
        """Ensure that a task takes from the queue on the loop's next turn, even if no running one does."""
        if self._spare is None and (self._queue or (self._ahead and self._room.has_place)):
            task = asyncio.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._spare = task

    async def _work(self) -> None:
        """Run one attempt after another. If a handler suspends, the spare task takes over the others.

        The same happens when this task has held the loop for long: the spare task begins after the loop has turned.
        """
        task, context = self._spare, copy_context()
        self._spare = None
        self._turned = time.monotonic()
        while time.monotonic() - self._turned < SLICE and (attempt := self._next()):
            self._have_spare_task()
            attempt.task = task
            try:
                attempted = await attempt_async(attempt.claims, self._calls)
            except GeneratorExit as error:
                # Of something that the handler awaits: it closes all calls below. Or this task is abandoned.
                if not self.running.keys() & set(map(id, attempt.claims)):
                    raise
                attempted = Attempted(outcomes_of(attempt.claims, [passable(error)] * len(attempt.claims)))
            self._note_runtime(attempt.claims[0], attempt.claims[0].finished)
            self._finish(attempted)
            if self._is_spent(attempt, context):
                break
        self._have_spare_task()

    def _note_runtime(self, claim: Claim, ended: float) -> None:
        # An attempt that came too late has no run time, and batches are not claimed ahead.
        if claim.started and not claim.state.batch:
            self._room.took(claim.operations.label, claim.state.is_async, ended - claim.started)

    @staticmethod
    def _is_spent(attempt: Attempt, context: Context) -> bool:
        """Return whether a handler left something in its task that the next one must not find."""
        cancelled = attempt.cancelled_at is not None or (attempt.task is not None and attempt.task.cancelling())
        return bool(cancelled) or copy_context() != context

    def _finish_sync(self, claims: list[Claim], attempted: Attempted) -> None:
        self._room.stuck.discard(id(claims[0]))
        self._room.thread_freed = time.monotonic()
        self._note_runtime(claims[0], self._room.thread_freed)
        if claims[0].state.atomic:
            self._recorded(claims[0].operations, attempted)
        self._finish(attempted)
        for claim in claims:
            if self._forget(claim):
                claim.free()

    def _finish(self, attempted: Attempted) -> None:
        for claim, outcome in attempted.ended:
            self._end(claim, outcome)

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        # Unless it was given up before: its row may be somebody else's by now.
        if self._forget(claim):
            self._done(claim, outcome)

    def _forget(self, claim: Claim) -> bool:
        key = id(claim)
        if self.running.pop(key, None) is None:
            return False
        attempt = self._attempts.pop(key)
        attempt.left -= 1
        if not attempt.left:
            self._room.enter(attempt.label, -1)
            if attempt.is_async:
                self._room.placed -= attempt.placed
            else:
                self._room.threaded -= 1
                self._room.ahead_of_threads -= not attempt.placed
            self._have_spare_task()
        return True

    def _overrun(self, attempt: Attempt) -> None:
        if attempt.is_async:
            self._cancel(attempt, "max_runtime")
            return
        logger.warning("stator.handler_stuck", extra=_fields(attempt.claims[0]))
        self._room.stuck.add(id(attempt.claims[0]))
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
        line = self._queue if attempt.placed else self._ahead[attempt.label]
        line.remove(attempt)
        if not line and not attempt.placed:
            del self._ahead[attempt.label]
        for claim in attempt.claims:
            self._end(claim, Released())

    def _abandon(self, attempt: Attempt) -> None:
        logger.warning("stator.attempt_abandoned", extra=_fields(attempt.claims[0]))
        for claim in attempt.claims:
            self._give_up(claim, timed_out(claim) if claim.cancelled_for == "max_runtime" else Released())

    def _give_up(self, claim: Claim, outcome: Outcome) -> None:
        self._calls.given_up(claim, outcome)
        self._end(claim, outcome)


def _fields(claim: Claim) -> dict[str, str]:
    return {"model": claim.operations.label, "pk": str(claim.pk), "state": claim.state.name}
