"""Owns the event loop: start, work, drain, stop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from contextvars import Context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from django.db import connections

from stator import signals
from stator.conf import Settings
from stator.db import Operations, operations_for
from stator.db.claim import Claim, new_worker_id
from stator.outcomes import Outcome
from stator.waits import waiters_of
from stator.worker.dispatcher import Dispatcher, lanes_of
from stator.worker.ending import close, stop_on_signals
from stator.worker.endpoint import Endpoint
from stator.worker.executor import Attempted
from stator.worker.heartbeat import Heartbeat, interval_for
from stator.worker.measures import Measures
from stator.worker.outage import reach
from stator.worker.presence import Presence
from stator.worker.recorder import Recorder
from stator.worker.scheduler import Scheduler
from stator.worker.slots import GRACE, Slots
from stator.worker.threads import DatabaseThread, database_thread_for_handlers, tidy_connections_of_loop
from stator.worker.watchdog import Watchdog

# Seconds after which a lost connection is noticed of which asynchronous handlers tell nobody, and their queries are
# forgotten that DEBUG collects.
MENDED_EVERY = 5.0


@dataclass
class Summary:
    """What a worker did: attempts per model, moves per ``(model, state)``, errors and refused writes.

    ``forced``: it was told twice to stop. ``unfinished``: attempts that did not end in time and were given up.
    ``ended``: why, ``"idle"``, ``"time over"``, ``"stopped"`` or ``"forced"``; empty while it works.
    """

    handled: dict[str, int] = field(default_factory=dict)
    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    failed: int = 0
    lost: int = 0
    forced: bool = False
    unfinished: int = 0
    ended: str = ""


class Worker:
    """One worker process: claims rows of the given models, attempts them, records what came of it.

    ``run_for``: stop after so many seconds, 0 for never. ``until_idle``: stop once nothing is ready or running.
    ``watch``: end the process when the loop freezes. ``heed_signals=False``: leave signals to the program that runs it.
    Runs in whichever thread calls :meth:`run`.
    """

    def __init__(
        self,
        models: list[Any],
        settings: Settings,
        *,
        alias: str | None = None,
        run_for: float = 0.0,
        until_idle: bool = False,
        liveness_file: str | None = None,
        watch: bool = False,
        heed_signals: bool = True,
        progress: Callable[["Worker"], None] | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        self.settings = settings
        self.id = new_worker_id()
        self.run_for = run_for
        self.until_idle = until_idle
        self.operations = [operations_for(model, settings, self.id, alias) for model in models]
        self.started = time.monotonic()
        self._liveness_file = liveness_file
        self._watch = watch
        self._heed_signals = heed_signals
        self._progress = progress
        self._endpoint = endpoint
        self.measures = Measures()
        self._stopping: asyncio.Event | None = None
        self._forced = False
        self._why = ""
        self._unfinished = 0

    # Life

    def run(self) -> Summary:
        """Work until told to stop, or as long as asked for; return what was done."""
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            # In a context of its own: in that of a request, asynchronous handlers that use the database would wait
            # for the thread that this runs in.
            return Context().run(loop.run_until_complete, self._main())
        finally:
            asyncio.set_event_loop(None)
            close(loop)

    def stop(self, why: str = "stopped") -> None:
        """Stop gracefully; a second call stops at once. Call it on the event loop, as signal handlers do."""
        self._forced = self._forced or self._is_stopping
        self._why = "forced" if self._forced else why
        if self._stopping is not None:
            self._stopping.set()
            self.scheduler.stop()
            self.dispatcher.stop()

    async def _main(self) -> Summary:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._build()
        # Before anybody can see the worker and tell it to stop.
        with stop_on_signals(self._loop, self.stop) if self._heed_signals else nullcontext():
            self._start_threads()
            try:
                async with database_thread_for_handlers():
                    loops = [asyncio.create_task(loop) for loop in self._loops()]
                    error = await self._wait(loops)
                    await self._shut_down(loops)
            finally:
                self._stop_threads()
        if error is not None:
            raise error
        return self.summary()

    def _build(self) -> None:
        lanes = [lane for operations in self.operations for lane in lanes_of(operations)]
        claims, records, duties = self._database_threads()
        timed = self.measures.timed
        self.recorder = Recorder(timed("record", records.run), self.settings.BATCH_SIZE, self._moved_on)
        self.slots = Slots(self.settings, self._ended, self._recorded)
        claim = timed("claim", claims.run)
        self.dispatcher = Dispatcher(lanes, self.slots, claim, self._is_empty, self.recorder.is_behind)
        self.scheduler = Scheduler(self.operations, lanes, self.settings, duties.run)
        leases = [
            operations.lease_of(state) for operations in self.operations for state in operations.graph.automatic_states
        ]
        presence = Presence(self.id, self.operations, self._figures)
        self.heartbeat = Heartbeat(self._held, self._claims_ended, interval_for(leases), presence)
        self.watchdog = Watchdog(self.settings.WATCHDOG, self._liveness_file, self._trouble)
        self.listeners = self._listeners()

    def _database_threads(self) -> list[DatabaseThread]:
        if all(operations.concurrent_writers for operations in self.operations):
            self._threads = [DatabaseThread(f"stator-{name}") for name in ("claim", "record", "schedule")]
            return self._threads
        self._threads = [DatabaseThread("stator-database")]
        return self._threads * 3

    def _listeners(self) -> list[Any]:
        if not self.settings.NOTIFY:
            return []
        aliases = {operations.alias for operations in self.operations}
        wanted = sorted(alias for alias in aliases if connections[alias].vendor == "postgresql")
        if not wanted:
            return []
        # Here and not above: it needs psycopg, which a project on another database may not have.
        listener = import_module("stator.worker.listener").Listener
        return [listener(alias, self.settings.LISTEN_DSN, self._heard) for alias in wanted]

    def _start_threads(self) -> None:
        self.slots.start()
        self.heartbeat.start()
        for listener in self.listeners:
            listener.start()
        if self._watch:
            self.watchdog.start()
        if self._endpoint:
            self._endpoint.start(self)

    def _stop_threads(self) -> None:
        if self._endpoint:
            self._endpoint.stop()
        if self._watch:
            self.watchdog.stop()
        self.slots.stop()
        for part in (*self._threads, self.heartbeat, *self.listeners):
            part.stop(2.0)
        if not self._unfinished:
            self.slots.join(1.0)

    # The loops

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        return [self._fast_loop(), self._record_loop(), self._schedule_loop(), self._tick_loop(), self._mend_loop()]

    async def _fast_loop(self) -> None:
        while not self._is_stopping:
            if not await self._reach(self._claim_once):
                await self.dispatcher.woken.wait()

    async def _claim_once(self) -> bool:
        came = await self.dispatcher.claim()
        if came and not self.dispatcher.hungry:
            self.scheduler.soon()
        return bool(came)

    async def _record_loop(self) -> None:
        while True:
            await self.recorder.came.wait()
            if self.slots.running:
                await self.recorder.gather()
            await self._reach(self.recorder.flush)
            self.dispatcher.woken.set()
            if self.until_idle and self._is_empty():
                self.scheduler.soon(at_once=not self.dispatcher.hungry)

    async def _schedule_loop(self) -> None:
        await self._reach(lambda: self._threads[-1].run(signals.on_start.send, self))
        while not self._is_stopping:
            await self._reach(self._tick)
            await self.scheduler.rest()

    async def _tick(self) -> None:
        await self.scheduler.tick(self.dispatcher.woken.set)
        if self.until_idle and self._is_idle() and not self._is_stopping:
            self.stop("idle")

    async def _tick_loop(self) -> None:
        while True:
            self.watchdog.tick()
            self.slots.sweep()
            if self._progress:
                self._progress(self)
            if self.run_for and time.monotonic() - self.started > self.run_for and not self._is_stopping:
                self.stop("time over")
            await asyncio.sleep(0.1 if self.slots.running else 0.5)

    async def _mend_loop(self) -> None:
        while True:
            await asyncio.sleep(MENDED_EVERY)
            await tidy_connections_of_loop()

    async def _reach(self, step: Callable[[], Awaitable[Any]]) -> Any:
        return await reach(step, self.measures.unreachable, lambda: self._is_stopping and self._forced)

    async def _wait(self, loops: list[asyncio.Task[None]]) -> BaseException | None:
        """Until the worker is told to stop, or for an error in a loop, which is a fault of ours and ends the worker.

        It ends like any other: what it leaves claimed would be charged as crashes to rows that have no part in it.
        """
        stopping = asyncio.create_task(self._stopping.wait())  # type: ignore[union-attr]
        done, _ = await asyncio.wait([*loops, stopping], return_when=asyncio.FIRST_COMPLETED)
        error = next((task.exception() for task in done - {stopping} if task.exception()), None)
        if error is not None and not self._is_stopping:
            self.stop("failed")
        return error

    # Stopping, step by step

    async def _shut_down(self, loops: list[asyncio.Task[None]]) -> None:
        deadline = time.monotonic() + self.settings.SHUTDOWN_TIMEOUT
        await self._finish(loops[0], deadline)
        self.slots.hand_back()
        await self._until(lambda: not self.slots.running, deadline - GRACE)
        self.slots.cancel_all()
        await self._until(lambda: not self.slots.running, deadline)
        self._unfinished = len(self.slots.running)
        self.slots.release_all()
        least = time.monotonic() + 1
        records = loops[1]
        # Even when forced: a row that is not released stays locked until its lease ends.
        await self._until(lambda: not self.recorder.held or records.done(), max(deadline, least), even_forced=least)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _finish(self, fast_loop: asyncio.Task[None], deadline: float) -> None:
        """Let a claim that is on its way arrive, so that what it brings is handed back."""
        self.dispatcher.woken.set()
        least = time.monotonic() + 1
        await self._until(fast_loop.done, max(deadline, least), even_forced=least)

    async def _until(self, holds: Callable[[], bool], deadline: float, even_forced: float = 0.0) -> None:
        """Wait for it until the deadline; once a second signal has come, only until ``even_forced``."""
        while not holds() and time.monotonic() < (even_forced if self._forced else deadline):
            await asyncio.sleep(0.01)

    # What the parts tell each other

    def _ended(self, claim: Claim, outcome: Outcome) -> None:
        self.measures.note(claim, outcome)
        self.recorder.add(claim, outcome)
        self.dispatcher.woken.set()

    def _recorded(self, operations: Operations, attempted: Attempted) -> None:
        for ended in attempted.recorded:
            self.measures.note(*ended)
        if attempted.written:
            self.recorder.note_recorded(operations, attempted.recorded, attempted.written)
        self.dispatcher.woken.set()

    def _moved_on(self, operations: Operations, names: set[str]) -> None:
        self.dispatcher.wake(operations.label, names)
        for wait in waiters_of(operations.model):
            if names.intersection(wait.until):
                self.dispatcher.wake(wait.model._meta.label_lower)

    def _heard(self, label: str) -> None:
        self._loop.call_soon_threadsafe(self.dispatcher.wake, label)

    def _held(self) -> list[Claim]:
        return [*list(self.slots.running.values()), *list(self.recorder.held.values())]

    def _figures(self) -> dict[str, int]:
        handled = sum(self.recorder.handled.copy().values())
        return {"running": len(self.slots.running), "handled": handled, "lost": self.recorder.lost}

    def _claims_ended(self, keys: set[int]) -> None:
        self._loop.call_soon_threadsafe(self.slots.cancel_ended, keys)

    def _is_empty(self) -> bool:
        return not self.slots.running and not self.recorder.held

    def _is_idle(self) -> bool:
        return self.scheduler.found_nothing and self._is_empty() and not self.dispatcher.hungry

    def _trouble(self) -> str:
        return "every handler thread is held by a handler that does not return" if self.slots.all_stuck else ""

    @property
    def is_ready(self) -> bool:
        """Whether it takes on work: it is not stopping, and the database was reached at the latest attempt."""
        return not (self._is_stopping or self.measures.unreachable)

    @property
    def _is_stopping(self) -> bool:
        return self._stopping is not None and self._stopping.is_set()

    def summary(self) -> Summary:
        """What was done so far."""
        recorder = self.recorder
        return Summary(
            dict(recorder.handled), dict(recorder.moved), recorder.failed, recorder.lost, self._forced,
            self._unfinished, self._why,
        )  # fmt: skip
