"""Running attempts: starts them, and ends attempts that take too long."""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import cache, partial

from stator.conf import Settings
from stator.db.interface import Claim, Operations
from stator.exceptions import NotBegun, passable
from stator.graph import State
from stator.graph.outcomes import Outcome, Released
from stator.graph.running import RUNNING
from stator.worker.executor import (
    PLAIN,
    STOPPED,
    Attempted,
    Calls,
    CallsByState,
    attempt_async,
    attempt_sync,
    outcomes_of,
    timed_out,
)
from stator.worker.room import CallThreads, Room, ThreadAttempt
from stator.worker.thread_pool import NEEDED_FOR, Call, ThreadPool

logger = logging.getLogger("stator.worker")

# Seconds that a cancelled coroutine has to end before it is abandoned.
GRACE = 2.0

# Seconds that handlers that never suspend may follow each other before the event loop gets its turn.
TURN = 0.002

# Seconds after which waiting claims that were made ahead are released: other workers may have room.
PATIENCE = 1.0

NO_CALLS: CallsByState = {}

# After a claim found no row that needs no thread, the next such claim waits this many times as long as that claim took.
REST = 20


class Attempt:
    """One call of a handler in progress.

    ``placed``: whether it has a place on the loop.
    ``calls``: whether it is asynchronous and calls its code in a thread of :class:`CallThreads`.
    ``in_thread``: the call and the attempt, while such a thread makes all of the attempt.
    ``task``: the task of an asynchronous handler, once it has begun.
    ``cancelled_at``: when it was cancelled.
    """

    __slots__ = ("calls", "cancelled_at", "claims", "in_thread", "is_async", "label", "left", "placed", "task")

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.left = len(claims)
        self.label = claims[0].operations.label
        self.is_async = claims[0].state.is_async
        self.placed = self.calls = False
        self.in_thread: tuple[Call, ThreadAttempt] | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled_at: float | None = None

    @property
    def kind(self) -> tuple[str, bool]:
        """The model, and whether its code runs on the loop: attempts of one kind take about equally long."""
        return self.label, self.is_async and not self.calls


def grouped(claims: list[Claim]) -> list[list[Claim]]:
    """Return the claims of each attempt: one, or up to ``batch`` claims of one state, and of one part of the rows."""
    batches: dict[tuple[State, object], list[Claim]] = defaultdict(list)
    groups = []
    for claim in claims:
        if claim.state.batch:
            batches[claim.state, claim.operations.part].append(claim)
        else:
            groups.append([claim])
    for (state, _), group in batches.items():
        size = state.batch or 1
        groups += [group[start : start + size] for start in range(0, len(group), size)]
    return groups


class Attempts:
    """The attempts of one process. Lives on the event loop.

    ``done`` gets each claim with its outcome, once; ``recorded`` gets outcomes recorded in their handler's transaction.
    ``calls`` has the calls of handlers around which an extension does something.
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
        calls: CallsByState = NO_CALLS,
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
        # When an attempt claimed ahead last began, or the first one arrived.
        self._began = 0.0
        # By model: the time until which no claim asks for rows that need no thread.
        self._rests_until: dict[str, float] = {}
        self._calls = calls
        self._attempt_sync = self._attempt_wrapped if calls else attempt_sync
        self._threads = ThreadPool(settings.THREADS, "stator-handler")

    def room(self, label: str, is_async: bool, batch: int = 1) -> int:
        """Return how many more rows of this model may be claimed, ``batch`` at a time, for the loop or for threads."""
        return self._room.rows(label, is_async, batch, sum(map(len, self._ahead.values())))

    def use_threads(
        self,
        label: str,
        pool: ThreadPool,
        is_needed: Callable[[Claim], bool],
        spare: Callable[[str, bool], bool],
        attempt_of: Callable[[Claim], ThreadAttempt | None],
    ) -> None:
        """Count the room for a model's asynchronous handlers by the threads that call the project's code for them."""
        self._room.call_threads[label] = CallThreads(pool, is_needed, spare, attempt_of)

    @contextmanager
    def sparing_threads(self, operations: Operations) -> Iterator[tuple[int, list[Claim]]]:
        """Yield how many rows that need no thread may be claimed, and a list for them; claims find only such rows.

        Used while all threads are busy. A claim that finds none may have read all ready rows, so the next one has to
        wait.
        """
        label, worker_id, claims = operations.label, operations.worker_id, list[Claim]()
        threads, now = self._room.call_threads.get(label), time.monotonic()
        # Short calls free a thread sooner than such a claim would have read all ready rows.
        if not threads or self._room.are_short(label, False) or now < self._rests_until.get(label, 0.0):
            yield 0, claims
            return
        room = self._room.rows(label, True, 1, sum(map(len, self._ahead.values())), without_threads=True)
        if not room or not threads.spare(worker_id, True):
            yield 0, claims
            return
        try:
            yield room, claims
        finally:
            threads.spare(worker_id, False)
            if not claims:
                took = time.monotonic() - now
                self._rests_until[label] = now + max(self.settings.POLL_INTERVAL, REST * took)

    def begin(self, claims: list[Claim]) -> None:
        """Start the attempts for these claims; release the claims that would wait long for a thread."""
        attempts = self._with_threads([Attempt(group) for group in grouped(claims)])
        for attempt in attempts:
            for claim in attempt.claims:
                self.running[id(claim)] = claim
                self._attempts[id(claim)] = attempt
        self._room.per_model.update([attempt.label for attempt in attempts])
        self._line_up(attempts)
        # The caller's context names the thread that handlers use for the database; no handler has changed the context.
        self._context = copy_context()
        self._have_spare_task()
        threaded = [attempt.claims for attempt in attempts if not attempt.is_async]
        if threaded:
            self._threads.submit([Call(self._attempt_sync, claims, self._finish_sync) for claims in threaded])

    def sweep(self) -> None:
        """End attempts past their time limit or lease; abandon cancelled ones that do not end."""
        now = time.monotonic()
        for key, claim in list(self.running.items()):
            attempt = self._attempts.get(key)
            if attempt is None:
                continue
            # An asynchronous handler may prepare its attempt before it calls the project's code.
            since = claim.started or (claim.claimed if attempt.task or attempt.in_thread else now)
            if now - since > claim.max_runtime:
                self._overrun(attempt)
            elif now > claim.deadline:
                self._cancel(attempt, "lease")
            if attempt.cancelled_at is not None and now - attempt.cancelled_at > GRACE:
                self._abandon(attempt)
        self._hand_back_ahead(now)
        for pool in (self._threads, *(threads.pool for threads in self._room.call_threads.values())):
            pool.rest()

    def cancel_ended(self, keys: set[int]) -> None:
        """Cancel attempts all of whose claims have ended: the database refuses their writes."""
        attempts = {id(self._attempts[key]): self._attempts[key] for key in keys if key in self._attempts}
        # Those that have not begun come first: the thread that replaces a given-up one would begin them.
        for attempt in sorted(attempts.values(), key=lambda attempt: bool(attempt.claims[0].started)):
            if all(id(claim) in keys for claim in attempt.claims):
                self._cancel(attempt, "lease")

    def hand_back(self) -> None:
        """Release the claims whose attempts have not begun."""
        waiting = [attempt.claims for line in (self._queue, *self._ahead.values()) for attempt in line]
        self._queue.clear()
        self._ahead.clear()
        self._release([*waiting, *(call.argument for call in self._threads.take_back())])
        for attempt in list(self._attempts.values()):
            if not attempt.claims[0].started:
                self._cancel(attempt, "shutdown")

    def cancel_all(self) -> None:
        """Cancel all asynchronous attempts."""
        for attempt in list(self._attempts.values()):
            self._cancel(attempt, "shutdown")

    def release_all(self) -> None:
        """Give up running attempts: their rows are released, and later results are dropped."""
        for claim in list(self.running.values()):
            self._give_up(claim, claim.unfinished(STOPPED))

    def stop(self) -> None:
        """Make the handler threads end, and those of other pools that have nothing to do: workers may share these."""
        self._threads.stop()
        for threads in self._room.call_threads.values():
            threads.pool.rest(at_once=True)

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

    def _with_threads(self, attempts: list[Attempt]) -> list[Attempt]:
        """Note which attempts need threads. Return the attempts that get one soon and release the remaining ones."""
        if not self._room.call_threads:
            return attempts
        kept, are_short = [], cache(self._room.are_short)
        for attempt in attempts:
            threads = self._room.call_threads.get(attempt.label) if attempt.is_async else None
            attempt.calls = threads is not None and threads.note_claimed(attempt.claims[0])
            self._room.calling[attempt.label] += attempt.calls
            if attempt.calls and not are_short(attempt.label, False) and self._room.surplus(attempt.label):
                self._room.calling[attempt.label] -= 1
                for claim in attempt.claims:
                    self._done(claim, Released())
            else:
                kept.append(attempt)
        return kept

    def _line_up(self, attempts: list[Attempt]) -> None:
        """Give each attempt a place and a turn; attempts claimed ahead wait for both behind all other attempts."""
        room = self._room
        are_short = cache(room.are_short)
        for attempt in attempts:
            is_ahead = (
                are_short(attempt.label, attempt.is_async and not attempt.calls) and not attempt.claims[0].state.batch
            )
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
        # Models take turns, so that many attempts of one model do not block a few attempts of another.
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
            if self._is_late(line[0], now, self._began):
                late += [attempt.claims for attempt in self._ahead.pop(label)]
        if self._room.threaded > self._room.threads:
            late += [call.argument for call in self._threads.take_back(partial(self._is_late_call, now))]
        for claims in late:
            self._room.took(*self._attempts[id(claims[0])].kind, PATIENCE)
        self._release(late)
        for label, threads in self._room.call_threads.items():
            if self._room.calling[label] > threads.free_of_stuck and threads.pool.hand_back(now - PATIENCE):
                self._room.took(label, False, PATIENCE)

    def _is_late(self, attempt: Attempt, now: float, moved: float) -> bool:
        """Return whether an attempt has waited too long: it is no longer short, or none has begun since ``moved``."""
        has_waited = now - attempt.claims[0].claimed > PATIENCE
        return has_waited and (now - moved > PATIENCE or not self._room.are_short(*attempt.kind))

    def _is_late_call(self, now: float, call: Call) -> bool:
        return self._is_late(self._attempts[id(call.argument[0])], now, self._room.thread_freed)

    def _release(self, waiting: list[list[Claim]]) -> None:
        for claims in waiting:
            for claim in claims:
                self._end(claim, claim.unfinished(STOPPED))

    def _have_spare_task(self) -> None:
        """Ensure that a task takes from the queue on the loop's next turn, even if no running one does."""
        if self._spare is None and (self._queue or (self._ahead and self._room.has_place)):
            task = asyncio.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._spare = task

    async def _work(self) -> None:
        """Run one attempt after another. If a handler suspends, the spare task runs the remaining attempts.

        The spare task also takes over when this task has held the loop for long; it begins after the loop has turned.
        """
        task = self._spare
        self._spare = None
        self._turned = time.monotonic()
        while time.monotonic() - self._turned < TURN and (attempt := self._next()):
            if attempt.calls and (attempt := self._hand_over(attempt)) is None:
                break
            if self._spare is None:
                self._have_spare_task()
            attempt.task = task
            # The handler is called with these claims in its context, which so is as before unless it changes it.
            RUNNING.set(attempt.claims)
            context = copy_context()
            try:
                attempted = await attempt_async(
                    attempt.claims, self._calls_of(attempt.claims[0]) if self._calls else None
                )
            except GeneratorExit as error:
                # Something that the handler awaits raised it and closes all calls below; or this task is abandoned.
                if not self.running.keys() & set(map(id, attempt.claims)):
                    raise
                attempted = Attempted(outcomes_of(attempt.claims, [passable(error)] * len(attempt.claims)))
            on_loop = not attempt.calls
            claim = attempt.claims[0]
            self._note_runtime(claim, claim.finished, on_loop=on_loop)
            for ended, outcome in attempted.ended:
                self._end(ended, outcome)
            if self._is_spent(attempt, context):
                break
        self._have_spare_task()

    def _hand_over(self, first: Attempt) -> Attempt | None:
        """Hand attempts to their threads, beginning with this one; return the one after them that needs the loop.

        None if there is no such attempt in this turn.
        """
        calls = defaultdict[str, list[Call]](list)
        attempt: Attempt | None = first
        while attempt is not None and attempt.calls and (call := self._call_of(attempt)):
            calls[attempt.label].append(call)
            attempt = self._next() if time.monotonic() - self._turned < TURN else None
        for label, together in calls.items():
            self._room.call_threads[label].pool.submit(together)
        return attempt

    def _call_of(self, attempt: Attempt) -> Call | None:
        """Return the call by which a thread makes all of the attempt, None if it needs the loop."""
        claim = attempt.claims[0]
        # The loop goes on with an attempt that has failed in a thread.
        if claim.started or claim.state.batch or claim.kept or claim.operations.scope.path or not claim.may_begin:
            return None
        if self._calls and self._calls_of(claim) is not PLAIN:
            return None
        claim.instance.__dict__["stator"] = claim
        made = self._room.call_threads[attempt.label].attempt_of(claim)
        if made is None:
            return None
        RUNNING.set(attempt.claims)
        call = Call(copy_context().run, made.run_in_thread, partial(self._finish_in_thread, attempt))
        attempt.in_thread = call, made
        return call

    def _finish_in_thread(self, attempt: Attempt, call: Call) -> None:
        [claim], error = attempt.claims, call.error
        # It was given up.
        if id(claim) not in self.running:
            return
        attempt.in_thread = None
        if error is not None and not isinstance(error, NotBegun):
            self._queue.append(attempt)
            self._have_spare_task()
            return
        self._note_runtime(claim, claim.finished, on_loop=False)
        [(_, outcome)] = outcomes_of(attempt.claims, [error or call.result])
        self._end(claim, outcome)

    def _note_runtime(self, claim: Claim, ended: float, *, on_loop: bool) -> None:
        # An attempt that came too late has no run time, and batches are not claimed ahead.
        if claim.started and not claim.state.batch:
            self._room.took(claim.operations.label, on_loop, ended - claim.started)

    @staticmethod
    def _is_spent(attempt: Attempt, context: Context) -> bool:
        """Return whether a handler left something in its task that the next one must not find."""
        cancelled = attempt.cancelled_at is not None or (attempt.task is not None and attempt.task.cancelling())
        return bool(cancelled) or copy_context() != context

    def _finish_sync(self, call: Call) -> None:
        if call.error is not None:
            raise call.error
        claims, attempted = call.argument, call.result
        self._room.stuck.discard(id(claims[0]))
        self._room.thread_freed = time.monotonic()
        self._note_runtime(claims[0], self._room.thread_freed, on_loop=False)
        for claim, outcome in attempted.ended:
            self._end(claim, outcome)
        if claims[0].state.atomic:
            self._recorded(claims[0].operations, attempted)
            for claim in claims:
                if self._forget(claim):
                    claim.free()

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        # An attempt that was given up is ignored: another worker may have its row by now.
        if self._forget(claim):
            self._done(claim, outcome)

    def _forget(self, claim: Claim) -> bool:
        key = id(claim)
        if self.running.pop(key, None) is None:
            return False
        attempt = self._attempts.pop(key)
        attempt.left -= 1
        if not attempt.left:
            self._room.per_model[attempt.label] -= 1
            self._room.calling[attempt.label] -= attempt.calls
            if attempt.is_async:
                self._room.placed -= attempt.placed
            else:
                self._room.threaded -= 1
                self._room.ahead_of_threads -= not attempt.placed
            if self._spare is None and (self._queue or self._ahead):
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
        if attempt.in_thread is not None:
            self._give_up_call(attempt, *attempt.in_thread)
            return
        line = self._queue if attempt.placed else self._ahead[attempt.label]
        line.remove(attempt)
        if not line and not attempt.placed:
            del self._ahead[attempt.label]
        for claim in attempt.claims:
            self._end(claim, claim.unfinished(STOPPED))

    def _give_up_call(self, attempt: Attempt, call: Call, made: ThreadAttempt) -> None:
        self._room.call_threads[attempt.label].pool.give_up(call)
        made.give_up()
        # What refers to the attempt would otherwise only be freed by the garbage collector.
        attempt.in_thread = None
        self._end_cancelled(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        logger.warning("stator.attempt_abandoned", extra=_fields(attempt.claims[0]))
        self._end_cancelled(attempt)

    def _end_cancelled(self, attempt: Attempt) -> None:
        for claim in attempt.claims:
            is_too_long = claim.cancelled_for == "max_runtime"
            self._give_up(claim, timed_out(claim) if is_too_long else claim.unfinished(STOPPED))

    def _attempt_wrapped(self, claims: list[Claim]) -> Attempted:
        return attempt_sync(claims, self._calls_of(claims[0]))

    def _calls_of(self, claim: Claim) -> Calls:
        return self._calls.get((claim.operations.label, claim.state.name), PLAIN)

    def _give_up(self, claim: Claim, outcome: Outcome) -> None:
        self._calls_of(claim).given_up(claim, outcome)
        self._end(claim, outcome)


def _fields(claim: Claim) -> dict[str, str]:
    return {"model": claim.operations.label, "pk": str(claim.pk), "state": claim.state.name}
