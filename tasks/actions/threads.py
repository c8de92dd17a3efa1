"""Threads for synchronous actions. They are daemons: an action that never returns must not keep the process alive."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from django.db import connections

from stator.exceptions import UNFIT_FOR_FUTURES, NotBegun, passable
from stator.worker.connections import check_rested_connections, clean_connections, own_connections


class _Call:
    """One function to run, and the future that waits for its result. ``since``: when it began to wait for a thread."""

    __slots__ = ("begun", "context", "function", "future", "given_up", "loop", "since")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.since = time.monotonic()
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        self.begun = False
        self.given_up = False


class Threads:
    """A pool of up to ``count`` threads, each with its own database connections.

    If the caller that awaits a function is cancelled, the function runs on, because it cannot be ended. Its thread is
    then abandoned and replaced, up to ``count`` times.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._queue: SimpleQueue[_Call] = SimpleQueue()
        self._lock = threading.Lock()
        # ``_queued`` counts a call until its thread has noted it, which is a moment after the call leaves the queue.
        self._alive = self._idle = self._queued = self._given_up = 0
        # Calls that may be handed back.
        self._waiting: dict[int, _Call] = {}
        self._exhausted_since = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether ``count`` abandoned functions are still running, so that no thread is free or replaced."""
        return self._given_up >= self.count

    def are_exhausted_for(self, seconds: float) -> bool:
        """Return whether the pool has been exhausted for this many seconds."""
        return self.exhausted and time.monotonic() - self._exhausted_since >= seconds

    def hand_back(self, waiting_since: float) -> bool:
        """Give up the calls that have waited for a thread since before that time; return whether there were any.

        Their futures raise ``NotBegun``. Call it on the event loop.
        """
        with self._lock:
            late = [call for call in self._waiting.values() if call.since < waiting_since]
            for call in late:
                call.given_up = True
                del self._waiting[id(call)]
        for call in late:
            if not call.future.done():
                call.future.set_exception(NotBegun(0.0, ""))
        return bool(late)

    async def run(self, function: Callable[[], Any], *, must_begin: bool = False) -> Any:
        """Run ``function`` in a thread as soon as one is free; return its result or raise its exception.

        ``must_begin``: the call is never handed back.
        """
        call = _Call(function)
        with self._lock:
            if not must_begin:
                self._waiting[id(call)] = call
            self._queue.put(call)
            self._queued += 1
            if self._idle < self._queued:
                self._start_thread()
        try:
            return await call.future
        except asyncio.CancelledError:
            self._give_up(call)
            raise

    def _start_thread(self) -> None:
        if self._alive - self._given_up < self.count:
            self._alive += 1
            threading.Thread(target=self._work, name=f"tasks-action-{self._alive}", daemon=True).start()

    def _give_up(self, call: _Call) -> None:
        with self._lock:
            call.given_up = True
            self._waiting.pop(id(call), None)
            # A call that has not begun is skipped by the thread that takes it.
            if call.begun and not self.exhausted:
                self._given_up += 1
                self._exhausted_since = time.monotonic()
                self._start_thread()
            else:
                call.begun = False

    def _work(self) -> None:
        own_connections()
        while self._turn():
            pass
        connections.close_all()

    def _turn(self) -> bool:
        """Run one function; return whether the thread continues."""
        with self._lock:
            self._idle += 1
        call = self._queue.get()
        with self._lock:
            self._idle -= 1
            self._queued -= 1
            if call.given_up:
                return True
            self._waiting.pop(id(call), None)
            call.begun = True
        check_rested_connections()
        result, error = _result_of(call)
        clean_connections()
        _call_soon(call.loop, _settle, call.future, result, error)
        with self._lock:
            # A thread that was abandoned and replaced ends. One that could not be replaced continues.
            replaced = _was_replaced(call)
            call.begun = False
            self._given_up -= replaced
            self._alive -= replaced
        return not replaced


def _was_replaced(call: _Call) -> bool:
    return call.given_up and call.begun


def _result_of(call: _Call) -> tuple[Any, BaseException | None]:
    try:
        return call.context.run(contained, call.function), None
    except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
        return None, error


def contained(function: Callable[..., Any], *args: object) -> Any:
    """Call project code for a coroutine that awaits the result; raise no error that a future would not pass on."""
    try:
        return function(*args)
    except UNFIT_FOR_FUTURES as error:
        raise passable(error) from error


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        # The loop is closed: the worker has ended, and nobody awaits the result.
        return


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
