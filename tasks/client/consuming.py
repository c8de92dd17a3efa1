"""The loop of a named worker. It needs neither HTTP nor Django, only claims of the class :class:`LoopClaim`."""

import contextvars
import logging
import os
import random
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import cache
from types import FrameType
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

logger = logging.getLogger("tasks.consume")

MIN_PAUSE, MAX_PAUSE = 0.2, 10.0
# The fractions of a lease after which a heartbeat is sent: by default, and at the latest.
USUAL, LATEST = 1 / 3, 2 / 3
# The least seconds between a failed heartbeat and the next one.
BEAT_AGAIN = 1.0
LEFT = "its worker left the loop"


class LoopClaim:
    """A claim that a worker holds, as the loop uses it. ``since``: the monotonic time when its lease began.

    ``lease``: seconds from then until it runs out.
    ``ended``: whether this program has ended the claim.
    ``heartbeat_interval``, ``max_unexpected_retries``: of the task, as of the latest heartbeat; None if it has none.
    ``unexpected_errors``: the errors of this worker in all its claims of the task; 0 until one was noted in this claim.
    """

    lease: float
    heartbeat_interval: float | None
    max_unexpected_retries: int | None

    def __init__(self, since: float) -> None:
        self._since = since
        self.ended = self._is_lost = False
        self.unexpected_errors = 0

    @property
    def lost(self) -> bool:
        """Return whether the claim is lost: one of its methods found so, or its lease is over by this program's clock.

        The clock runs on while the server or the database is unavailable. A claim that was ended in time is not lost.
        """
        return not self.ended and (self._is_lost or time.monotonic() >= self._until)

    @property
    def heartbeat_due(self) -> float:
        """Return the monotonic time of the next heartbeat: after the task's interval, else a third of the lease."""
        return self._since + self._beat_after

    def heartbeat(self) -> None:
        """Renew the lease."""
        raise NotImplementedError

    @property
    def _until(self) -> float:
        return self._since + self.lease

    @property
    def _beat_after(self) -> float:
        if self.heartbeat_interval is None:
            return self.lease * USUAL
        return min(self.heartbeat_interval, self.lease * LATEST)


class StopSignals:
    """Call ``stop`` at the first SIGTERM or SIGINT; a second one is handled as before. For the main thread alone."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        _watch_forks()
        _heeding.add(self)
        for number in (signal.SIGTERM, signal.SIGINT) if _is_main_thread() else ():
            # A program that is started with nohup, or in the background, ignores some signals.
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *error: object) -> None:
        _heeding.discard(self)
        while self._before and _is_main_thread():
            number, handler = self._before.popitem()
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.__exit__()
        self._stop()


# The instances that handle signals now. A forked child, such as multiprocessing's, handles signals as before.
_heeding: set[StopSignals] = set()


@cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    for each in list(_heeding):
        each.__exit__()


ClaimT = TypeVar("ClaimT", bound=LoopClaim)


class Loop(Generic[ClaimT]):
    """The loop of a worker, whether its program is synchronous or not.

    Its coroutines wait by ``_take``, ``_do``, ``_sleep`` and ``_outcome`` alone. These are implemented by
    :class:`ConsumerLoop`, where they block and never suspend, and by ``tasks.queue.consuming.AsyncQueueLoop``.

    ``local_retries``: how many times the function given to ``run`` is called again after an error, each time after
    ``local_delay`` seconds, unless the task has ``max_unexpected_retries``.
    """

    # Errors that mean that the claim has ended.
    lost_errors: tuple[type[Exception], ...] = ()
    # Errors that say nothing about the task; the next try may succeed.
    passing_errors: tuple[type[Exception], ...] = ()
    # Errors without local retries.
    final_errors: tuple[type[Exception], ...] = ()

    def __init__(self, *, local_retries: int = 0, local_delay: float = 1.0) -> None:
        self.local_retries, self.local_delay = local_retries, local_delay
        self.stopped = False
        # The first claim is the one at hand.
        self._held: list[ClaimT] = []
        self._changed = threading.Event()
        self._is_over = False

    def stop(self) -> None:
        """Claim nothing more, and end after the task at hand. Any thread and any signal handler may call this."""
        self.stopped = True

    # How it waits

    async def _take(self) -> list[ClaimT]:
        """Claim tasks; wait for some."""
        raise NotImplementedError

    async def _do(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function that may block."""
        raise NotImplementedError

    async def _sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def _outcome(self, claim: ClaimT, handle: Callable[[ClaimT], Any]) -> tuple[object, Exception | None]:
        """Call the function of the program; return its result or its error."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not much longer than until the loop is stopped."""
        end = time.monotonic() + seconds
        while not self.stopped and (left := end - time.monotonic()) > 0:
            await self._sleep(min(left, MIN_PAUSE))

    # The story of a claim

    async def _claims(self) -> AsyncGenerator[ClaimT, None]:
        """Yield claims until the loop is stopped."""
        beat = await self._do(self.for_thread, self._beat)
        thread = threading.Thread(target=beat, name="heartbeats of a consumer", daemon=True)
        begun, self._is_over = None, False
        with StopSignals(self.stop):
            thread.start()
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
                for claim in self._held:
                    await self._call(claim, *(("release", LEFT) if claim is begun else ("hand_back",)))
                self._is_over = True
                self._changed.set()
                await self._do(thread.join, MAX_PAUSE)

    async def _next_claims(self) -> list[ClaimT]:
        """Return claims once there are some, and nothing once the loop is stopped."""
        pause = MIN_PAUSE
        while not self.stopped:
            began = time.monotonic()
            try:
                if claims := await self._take():
                    return claims
                # If the server answers at once instead of waiting, do not ask it all the time.
                pause = MIN_PAUSE
                await self._pause(began + 2 * pause - time.monotonic())
            except self.passing_errors as error:
                self._tell("tasks.consumer_claim_failed", error=error)
                await self._do(self.recover)
                pause = min(MAX_PAUSE, 2 * pause)
                await self._pause(pause * random.uniform(0.5, 1.0))
        return []

    async def _attempt(self, claim: ClaimT, handle: Callable[[ClaimT], object]) -> None:
        while True:
            result, error = await self._outcome(claim, handle)
            if error is None:
                return await self._resolve(claim, result)
            if self._is_last(claim, error) or not await self._counted(claim):
                return await self._call(claim, "fail", error)
            await self._pause(self.local_delay)

    def _is_last(self, claim: LoopClaim, error: Exception) -> bool:
        """Return whether this error of the function ends the attempt without being counted."""
        self._tell("tasks.consumer_attempt_failed", claim, error, exc_info=error)
        return self.stopped or isinstance(error, self.final_errors) or not self._may_retry(claim, 1)

    async def _counted(self, claim: LoopClaim) -> bool:
        """Count an error with the task; return whether this worker tries again."""
        await self._call(claim, "note_error")
        return self._may_retry(claim)

    def _may_retry(self, claim: LoopClaim, least: int = 0) -> bool:
        own = claim.max_unexpected_retries
        most = self.local_retries if own is None else own
        return not claim.ended and not claim.lost and most >= max(least, claim.unexpected_errors)

    async def _resolve(self, claim: LoopClaim, result: object) -> None:
        try:
            await self._call(claim, "resolve", result)
        except Exception as error:  # noqa: BLE001 - a result that cannot be stored, which no retry would change
            await self._call(claim, "fail", error)

    async def _call(self, claim: LoopClaim, verb: str, *arguments: object) -> None:
        """Call a method of the claim unless it has ended; repeat the call while the lease lasts."""
        while not claim.ended and not claim.lost:
            try:
                return await self._do(getattr(claim, verb), *arguments)
            except self.lost_errors:
                break
            except self.passing_errors as error:
                self._tell("tasks.consumer_call_failed", claim, error)
                await self._do(self.recover)
                await self._sleep(MIN_PAUSE)
        if not claim.ended:
            self._tell("tasks.consumer_claim_lost", claim)
        return None

    # Heartbeats, in a thread of their own

    def _beat(self) -> None:
        pause: float | None = None
        while not self._is_over:
            if self._changed.wait(pause):
                self._changed.clear()
            due = [claim for claim in self._alive() if claim.heartbeat_due <= time.monotonic()]
            failed = [claim for claim in due if not self._sent_heartbeat(claim)]
            self.after_heartbeats()
            left = min((claim.heartbeat_due - time.monotonic() for claim in self._alive()), default=None)
            pause = None if left is None else max(left, BEAT_AGAIN if failed else 0.0)
        self.leave_thread()

    def _alive(self) -> list[ClaimT]:
        return [claim for claim in self._held if not claim.ended and not claim.lost]

    def _sent_heartbeat(self, claim: LoopClaim) -> bool:
        try:
            claim.heartbeat()
        except Exception as error:  # noqa: BLE001 - if no later heartbeat succeeds, the claim is lost by its own clock
            if claim.ended:
                # The loop has ended this claim meanwhile; the heartbeats of the other claims must not wait for that.
                return True
            self._tell("tasks.consumer_heartbeat_failed", claim, error)
            self.recover()
            return False
        return True

    # Hooks for subclasses

    def recover(self) -> None:
        """Prepare for another try."""

    def for_thread(self, beat: Callable[[], None]) -> Callable[[], None]:
        """Return what the thread of the heartbeats calls; this is called where the loop makes its claims."""
        return beat

    def after_heartbeats(self) -> None:
        """Look at the claims, as some may be lost now; called in the thread of the heartbeats."""

    def leave_thread(self) -> None:
        """Close what the ending thread of the heartbeats has opened."""

    def _tell(
        self,
        what: str,
        claim: LoopClaim | None = None,
        error: Exception | None = None,
        exc_info: BaseException | None = None,
    ) -> None:
        extra = {"claim": repr(claim) if claim else None, "error": type(error).__name__ if error else None}
        logger.warning(what, extra={name: value for name, value in extra.items() if value}, exc_info=exc_info)


class ConsumerLoop(Loop[ClaimT]):
    """The loop of a worker: iterate over it, or let :meth:`run` call a function for each task.

    It waits for tasks, sends heartbeats for all claims that it holds from a thread, and ends after :meth:`stop`, or in
    the main thread at SIGTERM or SIGINT, once the task at hand is done. If the body of a ``for`` has not ended its
    claim, the next turn resolves it. If the body is left by an error or by ``break``, the claim is released. Tasks that
    were claimed and not begun are handed back.
    """

    def take(self) -> list[ClaimT]:
        """Claim tasks; wait for some."""
        raise NotImplementedError

    def run(self, handle: Callable[[ClaimT], object]) -> None:
        """Call ``handle(claim)`` for each task until the loop is stopped; what it returns is the task's result.

        If it raises an error after all local retries, the attempt fails with that error and the loop goes on. If it
        ends the claim itself, nothing else is done.
        """
        for claim in self:
            _finished(self._attempt(claim, handle))

    def pause(self, seconds: float) -> None:
        """Sleep, but not much longer than until the loop is stopped."""
        _finished(self._pause(seconds))

    def __iter__(self) -> Iterator[ClaimT]:
        claims = self._claims()
        try:
            while (claim := _finished(_next(claims))) is not None:
                yield claim
        finally:
            _finished(claims.aclose())

    async def _take(self) -> list[ClaimT]:
        return self.take()

    async def _do(self, function: Callable[..., Result], *arguments: object) -> Result:
        return function(*arguments)

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _outcome(self, claim: ClaimT, handle: Callable[[ClaimT], Any]) -> tuple[object, Exception | None]:
        try:
            return contextvars.copy_context().run(handle, claim), None
        except Exception as error:  # noqa: BLE001 - whatever the function raises is the end of this attempt alone
            return None, error


async def _next(claims: AsyncGenerator[ClaimT, None]) -> ClaimT | None:
    return await anext(claims, None)


def _finished(coroutine: Coroutine[object, None, Result]) -> Result:
    """Run a coroutine that never suspends, without an event loop; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the loop of a synchronous program has to wait by blocking")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
