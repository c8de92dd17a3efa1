"""The worker: owns the event loop, starts, works, drains and stops."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import Context
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from django.db import connections
from django.db.models import Model

from stator import signals
from stator.batteries import parts_of
from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.db import operations_for
from stator.db.files import watched_files
from stator.db.interface import Claim, new_worker_id
from stator.db.locks import limit_waits
from stator.db.suspensions import Suspensions
from stator.logs import log_ready, log_start, log_stopping
from stator.rows.workers import default_name, give_name
from stator.scopes import Scope
from stator.worker.alone import Alone
from stator.worker.around import calls_by_state
from stator.worker.attempts import GRACE, Attempts
from stator.worker.dispatcher import Dispatcher, Lanes, lanes_of
from stator.worker.health import Health
from stator.worker.heartbeat import Heartbeat, interval_for
from stator.worker.outage import Outages, reach
from stator.worker.parts import Monitor, WorkerPart, WorkerParts
from stator.worker.recorder import Recorder
from stator.worker.scheduler import Scheduler, send_in
from stator.worker.serving import Served, Serving
from stator.worker.shutdown import Requests, close, stop_on_signals
from stator.worker.startup import Scopes
from stator.worker.tables import Tables
from stator.worker.thread_pool import database_thread_for_handlers
from stator.worker.threads import DatabaseThreads, RunInThread, tidy_connections_of_loop

if TYPE_CHECKING:
    from stator.worker.listener import Listener

# Seconds that the end of a worker waits for each of its threads.
STOP_TIME = 2.0

# Seconds after which connections that asynchronous handlers lost are closed, and the queries that DEBUG collects are
# dropped.
MENDED_EVERY = 5.0


@dataclass
class Summary:
    """The results of a worker: attempts per model, moves per ``(model, state)``, errors and refused writes.

    ``forced``: it was asked twice to stop.
    ``unfinished``: attempts that did not end in time and were given up.
    ``ended``: the reason, ``"idle"``, ``"time over"``, ``"stopped"``, ``"orphaned"`` (its supervisor is gone),
    ``"failed"`` or ``"forced"``; empty while it works.
    """

    handled: dict[str, int] = field(default_factory=dict)
    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    failed: int = 0
    lost: int = 0
    forced: bool = False
    unfinished: int = 0
    ended: str = ""


@dataclass(eq=False, repr=False, kw_only=True)
class WorkerOptions:
    """How a worker works, whatever its models.

    ``until_idle``: stop once nothing is ready or running.
    ``watch``: end the process when the loop freezes.
    ``heed_signals=False``: leave signals to the program that runs it.
    ``announce``: log its start, the models it serves, and its end.
    ``requests``: see ``StopRequests``. ``parent``: it stops when this process, which started it, is gone.
    ``command``: the options of the command that runs it, of whose processes this is the one with that ``number``.
    ``replaces``: the process that it replaces, and that process's exit code, negative for a signal.
    ``has_process``: it has its process for itself; false for a program that runs a worker within itself.
    ``queues``: the queues whose tasks it claims, except ``excluded_queues``; ``metadata``: values that these tasks have
    in their metadata; empty: all.
    ``name``: by default the host and the process.
    """

    until_idle: bool = False
    watch: bool = False
    heed_signals: bool = True
    progress: Callable[["Worker"], None] | None = None
    announce: bool = False
    requests: Requests | None = None
    parent: int | None = None
    command: Mapping[str, object] = field(default_factory=dict)
    number: int = 0
    replaces: tuple[int, int] | None = None
    has_process: bool = False
    queues: tuple[str, ...] = ()
    excluded_queues: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    name: str = ""


@dataclass(eq=False, repr=False)
class Worker(WorkerOptions):
    """One worker process: claims rows of the given models, attempts them and records the outcomes.

    The worker runs in the thread that calls :meth:`run`.

    ``find``: return the scopes in which it works, with their models, if these are not just the databases.
    ``scopes``: what ``find`` has returned last.
    ``run_for``: seconds after which it stops; 0 for never.
    """

    models: InitVar[Sequence[type[Model]]]
    settings: Settings
    _: KW_ONLY
    alias: InitVar[str | None] = None
    scopes: InitVar[Scopes | None] = None
    find: Served | None = None
    run_for: float = 0.0
    liveness_file: str | None = None  # stator.extensions.watchdog

    # Seconds from the start to the end of the first poll.
    ready_after: float = field(default=0.0, init=False)

    def __post_init__(
        self,
        models: Sequence[type[Model]],
        alias: str | None,
        scopes: Scopes | None,
    ) -> None:
        self.id, self.name = new_worker_id(), self.name or default_name()
        give_name(self.id, self.name)
        # One for each model and database, whatever scopes there are.
        self.kinds = [operations_for(model, self.settings, self.id, alias) for model in models]
        # Changes as scopes get something to do, and have nothing to do any more.
        self.operations = self.kinds if scopes is None else []
        self._scopes = scopes or {}
        if self.find:
            self.find.follow()
        limit_waits(self.operations)
        self.started = time.monotonic()
        # Steps that did not reach a database at their latest try, databases that record nothing, claims in doubt.
        self.suspended = Suspensions()
        self.health = Health()
        self._stopping: asyncio.Event | None = None
        self._forced, self._why = False, ""
        self._unfinished = 0

    # Life

    def run(self) -> Summary:
        """Work until asked to stop or until the time is over; return a summary."""
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            # The loop gets its own context: in a request's context, asynchronous handlers that use the database would
            # wait for this very thread.
            with watched_files():
                return Context().run(self._complete, loop)
        finally:
            asyncio.set_event_loop(None)
            close(loop)

    def _complete(self, loop: asyncio.AbstractEventLoop) -> Summary:
        main = loop.create_task(self._main())
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt):
                # A task that a handler has started raised it, which stops the loop. Code that awaits the task gets the
                # error too. A person's Ctrl-C arrives here only if the program handles signals itself.
                if main.done() or not self.heed_signals:
                    raise

    def stop(self, why: str = "stopped") -> None:
        """Stop gracefully; at once if it was asked to stop before. Call it on the event loop, as signal handlers do."""
        self._forced = self._forced or self._why == why == "stopped"
        before, self._why = self._why, "forced" if self._forced else why
        # A third Ctrl-C logs nothing new.
        if self.announce and self._why != before:
            log_stopping(self._why)
        for operations in self.operations:
            operations.stop()
        if self._stopping is not None:
            self._stopping.set()
            self._begun.set()
            self.scheduler.stop()
            self.dispatcher.stop()

    async def _main(self) -> Summary:
        self._loop = asyncio.get_running_loop()
        self._stopping, self._begun = asyncio.Event(), asyncio.Event()
        self._build()
        if self.announce:
            log_start(self)
        # The signals are handled before anybody can see the worker and signal it.
        heeding = stop_on_signals(self._loop, self.stop, self.requests)
        with heeding if self.heed_signals else nullcontext():
            self.parts.start()
            try:
                async with database_thread_for_handlers() as self._loop_threads:
                    loops = [asyncio.create_task(loop) for loop in self._loops()]
                    error = await self._wait(loops)
                    await self._shut_down(loops)
            finally:
                self.parts.stop()
                if not self._unfinished:
                    self.attempts.join(1.0)
        if error is not None:
            raise error
        return self.summary()

    def _build(self) -> None:
        self.lanes = Lanes(lane for operations in self.operations for lane in lanes_of(operations))
        threads = self._threads = DatabaseThreads(self.kinds)
        monitors: list[Monitor] = []
        self.recorder = Recorder(
            threads.record, self.settings.BATCH_SIZE, self.suspended,
            self.lanes.woken.set, self.lanes.wake_after, monitors,
        )  # fmt: skip
        calls = calls_by_state(self.kinds)
        self.attempts = Attempts(self.settings, self.recorder.add, self.recorder.note_recorded, calls)
        self.health.watch("handlers", self.attempts.trouble)
        self.serving = self.find.serving(self, self._scopes) if self.find else Serving(self)
        further = parts_of(self)
        monitors += [part.monitor for part in further if part.monitor]
        here = Alone(self.attempts.begin, self.is_empty)
        self.alone = next((part.alone for part in further if part.alone), here)
        self.dispatcher = Dispatcher(
            self.lanes, self.attempts, threads, self.alone, self.recorder, self.settings.crashed_at_once,
            self.suspended, monitors,
        )  # fmt: skip
        self.scheduler = Scheduler(
            self.operations, self.lanes, self.settings, threads.duties.run, threads.prepare, self.kinds
        )
        self.tables = Tables(self.operations, threads.duties.run, has_paths=self.has_paths)
        self.reach = partial(reach, suspended=self.suspended, has_no_time=self._has_no_time, tables=self.tables)
        leases = [lease for each in self.kinds for lease in each.shortest_leases()]
        soon = partial(partial, self._loop.call_soon_threadsafe)
        self.heartbeat = Heartbeat(
            self.claims, soon(self._cancel_ended), interval_for(leases),
            [part.shown for part in further if part.shown],
            aliases=self.scheduler.databases, connected=soon(self.lanes.woken.set),
            unrecorded=self.recorder.unrecorded, handed_back=soon(self.recorder.forget), patience=self.settings.LEASE,
        )  # fmt: skip
        threads.needed.append(self.heartbeat.connections)
        self.listeners = self._listeners()
        self.parts = WorkerParts([*self._threads_beside(), *self._looked_after(), *further])

    def _threads_beside(self) -> Iterator[WorkerPart]:
        """Yield the parts that hear, renew, claim and record; they stop after all others."""
        for listener in self.listeners:
            yield WorkerPart(start=listener.start, stop=partial(listener.stop, STOP_TIME))
        yield WorkerPart(start=self.heartbeat.start, stop=partial(self.heartbeat.stop, STOP_TIME))
        yield WorkerPart(stop=partial(self._threads.stop, STOP_TIME))

    def _looked_after(self) -> Iterator[WorkerPart]:
        """Yield the parts that watch the attempts, and show them to others."""
        yield WorkerPart(stop=self.attempts.stop, beat=self.attempts.sweep)
        yield WorkerPart(beat=self.alone.sweep)
        if self.progress:
            yield WorkerPart(beat=partial(self.progress, self))

    def _listeners(self) -> "list[Listener]":
        if not self.settings.NOTIFY:
            return []
        aliases = {operations.alias for operations in self.kinds}
        wanted = sorted(alias for alias in aliases if capabilities_of(connections[alias]).notifies)
        if not wanted:
            return []
        # Imported here, because it needs psycopg, which a project on another database may not have.
        listener = import_module("stator.worker.listener").Listener
        soon, dsn = self._loop.call_soon_threadsafe, self.settings.LISTEN_DSN
        return [listener(alias, dsn, partial(soon, partial(self._hear, alias))) for alias in wanted]

    def _hear(self, alias: str, payload: str) -> None:
        """Take a notification: the label of a model and, if it is known, the path of its rows."""
        label, _, path = payload.partition(" ")
        scope = Scope(alias, path) if path and self.has_paths else None
        self.lanes.wake(label, scope=scope)
        if scope and self.serving.call(scope):
            self.scheduler.soon()

    # The way of a row: it is found, claimed, attempted and recorded

    def _loops(self) -> list[Coroutine[None, None, None]]:
        return [self._claim_loop(), self._record_loop(), self._schedule_loop(), self._tick_loop(), self._mend_loop()]

    async def _schedule_loop(self) -> None:
        """Poll for rows that are due, ready or lost, and do the duties; what is found wakes the claims."""
        await self.serving.begin()
        self._begun.set()
        while not self.is_stopping:
            await self.reach(self._tick)
            await self.scheduler.rest()

    async def _tick(self) -> None:
        outages = Outages()
        await self.tables.look_again()
        await self.serving.look(outages)
        await self.scheduler.tick()
        outages.raise_first()
        if not self.ready_after:
            self.ready_after = time.monotonic() - self.started
            if self.announce:
                log_ready(self.ready_after)
        if self.until_idle and self._is_idle() and not self.is_stopping:
            self.stop("idle")

    async def _claim_loop(self) -> None:
        """Claim rows while there is room, and begin their attempts; each hands its outcome to the recorder."""
        # Handlers are called only after the project has loaded its data at the start.
        await self._begun.wait()
        while not self.is_stopping:
            came = await self.reach(self.dispatcher.claim)
            if came and self.dispatcher.hungry:
                continue
            if came:
                self.scheduler.soon()
            await self.lanes.woken.wait()

    async def _record_loop(self) -> None:
        """Write the outcomes, which leaves room and may make further rows ready."""
        while True:
            await self.recorder.came.wait()
            if self.attempts.running:
                await self.recorder.gather()
            await self.reach(self.recorder.flush)
            self.lanes.woken.set()
            if self.until_idle and self.is_empty():
                self.scheduler.soon(at_once=not self.dispatcher.hungry)

    async def _tick_loop(self) -> None:
        """Look after the parts, and end the worker when its time has come."""
        while True:
            self.parts.beat()
            if self.run_for and time.monotonic() - self.started > self.run_for and not self.is_stopping:
                self.stop("time over")
            await asyncio.sleep(0.1 if self.attempts.running else 0.5)

    async def _mend_loop(self) -> None:
        """Close what the loop's threads do not need."""
        while True:
            await asyncio.sleep(MENDED_EVERY)
            await tidy_connections_of_loop(close=self.attempts.loop_rests)
            self._loop_threads.rest()

    @property
    def run_duty(self) -> RunInThread:
        """Run a function in the thread of duties."""
        return self._threads.duties.run

    async def send_start(self, path: str) -> None:
        """Let the project load what its handlers need, on a path if there are any."""
        await self.run_duty(send_in, [path], signals.on_start, self)

    def _has_no_time(self) -> bool:
        return self.is_stopping and self._forced

    async def _wait(self, loops: list[asyncio.Task[None]]) -> BaseException | None:
        """Wait until the worker is told to stop, or return the error of a loop, which is a bug and ends the worker.

        Even then it shuts down normally: rows that it left claimed would count innocent crashes.
        """
        stopping = asyncio.create_task(self._stopping.wait())  # type: ignore[union-attr]
        done, _ = await asyncio.wait([*loops, stopping], return_when=asyncio.FIRST_COMPLETED)
        error = next((task.exception() for task in done - {stopping} if task.exception()), None)
        if error is not None and not self.is_stopping:
            self.stop("failed")
        return error

    # Stopping, step by step

    async def _shut_down(self, loops: list[asyncio.Task[None]]) -> None:
        deadline = time.monotonic() + self.settings.SHUTDOWN_TIMEOUT
        await self._finish(loops[0], deadline)
        self.attempts.hand_back()
        await self._until(lambda: not (self.attempts.running or self.alone.running), deadline - GRACE)
        self.attempts.cancel_all()
        self.alone.release_all()
        closing = asyncio.create_task(self.alone.close())
        await self._until(lambda: not self.attempts.running, deadline)
        self._unfinished = len(self.attempts.running)
        self.attempts.release_all()
        least = time.monotonic() + 1
        records = loops[1]
        # Wait even when forced: a row that is not released stays locked until its lease ends.
        await self._until(lambda: not self.recorder.held or records.done(), max(deadline, least), even_forced=least)
        # Wait for this while the loops run, because they show that the worker lives.
        await closing
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _finish(self, claim_loop: asyncio.Task[None], deadline: float) -> None:
        """Wait for a claim that is in progress, so that its rows can be released."""
        self.lanes.woken.set()
        least = time.monotonic() + 1
        await self._until(claim_loop.done, max(deadline, least), even_forced=least)

    async def _until(self, holds: Callable[[], bool], deadline: float, even_forced: float = 0.0) -> None:
        """Wait until ``holds()`` or the deadline; after a second signal, only until ``even_forced``."""
        while not holds() and time.monotonic() < (even_forced if self._forced else deadline):
            await asyncio.sleep(0.01)

    # Its work

    def claims(self) -> list[Claim]:
        """Return the claims that are held: attempts here or in processes of their own, and outcomes to record."""
        parts = (self.attempts.running, self.alone.running, self.recorder.held)
        return [claim for part in parts for claim in list(part.values())]

    def is_empty(self) -> bool:
        """Return whether no attempt runs in this process, and no outcome waits to be recorded."""
        return not self.attempts.running and not self.recorder.held

    def _is_idle(self) -> bool:
        """Return whether nothing is held and the latest poll found nothing."""
        is_busy = self.alone.running or self.dispatcher.hungry or self.serving.looks_soon
        return bool(self.scheduler.found_nothing and self.scheduler.has_passed and self.is_empty() and not is_busy)

    def _cancel_ended(self, keys: set[int]) -> None:
        """Cancel the attempts of claims, given by their ``id()``, that have ended."""
        self.attempts.cancel_ended(keys)
        self.alone.cancel_ended(keys)

    def figures(self) -> dict[str, int]:
        """Return what is published in the table of workers: attempts that run, and what was done so far."""
        handled = sum(self.recorder.handled.copy().values())
        running = len(self.attempts.running) + len(self.alone.running)
        return {"running": running, "handled": handled, "lost": self.recorder.lost}

    # Its state

    def served(self) -> dict[Scope, list[str]]:
        """Return the labels of the models that it serves in each scope, busy or not."""
        labels_of: dict[Scope, list[str]] = defaultdict(list)
        for operations in self.kinds if self.find is None else ():
            labels_of[operations.scope].append(operations.label)
        for scope, tables in self._scopes.items():
            labels_of[scope] += [model._meta.label_lower for model in tables]
        return {scope: sorted(labels) for scope, labels in labels_of.items()}

    @property
    def is_ready(self) -> bool:
        """Whether it takes on work: nothing holds it up, and its latest steps reached the database."""
        connected = all(self._threads.may_claim(operations.alias) for operations in self.kinds)
        return connected and not (self.is_stopping or self.suspended.held or self.health.trouble(0))

    @property
    def has_paths(self) -> bool:
        """Whether its scopes have paths, and so tables of their own."""
        return self.find is not None

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping is not None and self._stopping.is_set()

    def summary(self) -> Summary:
        """Return what was done so far."""
        recorder = self.recorder
        return Summary(
            dict(recorder.handled), dict(recorder.moved), recorder.failed, recorder.lost, self._forced,
            self._unfinished, self._why,
        )  # fmt: skip
