"""Attempts of objects that lost many leases in a row, in processes of their own: the worker goes on meanwhile."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TypeVar, cast

from stator.db.interface import Claim
from stator.extensions.isolation.messages import IsolatedAnswer, NotStarted, ProcessFailed, Request
from stator.extensions.isolation.process import IsolatedProcess
from stator.extensions.isolation.surroundings import Surroundings
from stator.extensions.watchdog.last_words import report_held
from stator.graph.outcomes import Outcome, Released
from stator.rows.workers import name_of
from stator.worker.alone import Alone
from stator.worker.executor import STOPPED, timed_out
from stator.worker.parts import WorkerPart
from stator.worker.recorder import Recorder
from stator.worker.thread_pool import ThreadPool
from stator.worker.worker import Worker

Result = TypeVar("Result")

logger = logging.getLogger("stator.worker")

# Processes that one worker has for such objects. Each costs a whole Python, and few objects need one.
AT_ONCE = 2

# Seconds that an idle process is kept.
IDLE_FOR = 5.0

# Seconds before the next start after a process that did not come up. After that many failures no more is started.
PAUSES = (1.0, 5.0, 20.0)

# Seconds that a process whose claim has ended has to report before it is killed.
GRACE = 2.0

# Seconds that processes have to end by themselves when their worker ends.
CLOSING = 2.0

# Seconds that a process has to hand back its object when its worker is gone.
HANDING_BACK = 2.0


def parts(worker: Worker) -> Iterator[WorkerPart]:
    """Yield the processes of a worker that has its own process.

    A program that runs a worker within itself may have changed settings in memory, which another process would lack.
    """
    if not worker.has_process:
        return
    options = {name: worker.command[name] for name in ("json_logs", "database")}
    recorder = worker.recorder
    alone = ProcessIsolation(
        worker.attempts.begin, worker.is_empty, {**options, "has_paths": worker.has_paths}, recorder.add,
        partial(_note, recorder), worker.lanes.woken.set,
    )  # fmt: skip
    yield WorkerPart(alone=alone)


def _note(recorder: Recorder, claim: Claim, said: IsolatedAnswer) -> None:
    """Count an attempt; ``said`` is the answer of its process, empty if it died."""
    recorder.note_elsewhere(
        claim,
        recorded=said.get("ended") == "recorded",
        moved=said.get("moved", ()),
        failed=said.get("failed", 0),
        lost=said.get("lost", 0),
    )


class ProcessIsolation(Alone):
    """Attempts in processes of their own, while this process goes on. Lives on the event loop.

    ``ended`` gets claims with an outcome to record. The process of an attempt records its outcome itself; ``on_answer``
    then gets the claim and the answer of the process. If the process dies there is no answer: the lease runs out and
    counts as any other crash. Until then this process renews the lease. If this process dies, the attempt's process
    releases the row. ``options`` are passed to the process. ``wake`` is called when a process is ready, so that there
    is room.
    """

    def __init__(
        self,
        begin: Callable[[list[Claim]], None],
        is_empty: Callable[[], bool],
        options: dict[str, object],
        ended: Callable[[Claim, Outcome], None],
        on_answer: Callable[[Claim, IsolatedAnswer], None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(begin, is_empty)
        self._options = options
        self._record = ended
        self._on_answer = on_answer
        self._wake = wake
        self._tasks: set[asyncio.Task[object]] = set()
        # Threads that wait for answers of processes, and for their start and end.
        self._threads = ThreadPool(2 * AT_ONCE, "stator-isolation")
        self._processes: dict[int, IsolatedProcess] = {}
        self._idle: list[IsolatedProcess] = []
        self._ended_at: dict[int, float] = {}
        self._failed = 0
        self._starting = False
        self._starts_at = 0.0

    @property
    def _works(self) -> bool:
        return self._failed <= len(PAUSES)

    def has_room(self, *, make: bool = False) -> bool:
        """Return whether one more object may be claimed now: a process waits for it; ``make``: else start one.

        An object is not claimed before, because its worker may die while its process starts.
        """
        if not self._works:
            return super().has_room()
        if len(self.running) >= AT_ONCE:
            return False
        if make and not (self._idle or self._starting) and time.monotonic() >= self._starts_at:
            self._starting = True
            self._start(self._bring_up())
        return bool(self._idle)

    def needs_room(self, is_wanted: bool) -> bool:
        """Return False as long as processes can be started."""
        return not self._works and super().needs_room(is_wanted)

    def begin(self, claims: list[Claim]) -> None:
        """Start the attempts for these claims."""
        if not self._works:
            super().begin(claims)
            return
        for claim in claims:
            self.running[id(claim)] = claim
            self._start(self._carry_out(claim, self._idle.pop() if self._idle else None))

    def sweep(self) -> None:
        """End attempts past their time limit, their lease or their claim, and idle processes."""
        now = time.monotonic()
        for key, claim in list(self.running.items()):
            if claim.started and now - claim.started > claim.max_runtime:
                self._give_up(claim, timed_out(claim))
            elif now > claim.deadline or now - self._ended_at.get(key, now) > GRACE:
                self._give_up(claim, claim.unfinished(STOPPED))
        self._retire([process for process in self._idle if now - process.idle_since > IDLE_FOR])

    def cancel_ended(self, keys: set[int]) -> None:
        """Note ended claims: their process, which is about to report it, or another process has ended them."""
        for key in keys & set(self.running):
            self._ended_at.setdefault(key, time.monotonic())

    def release_all(self) -> None:
        """Give up running attempts and release their rows."""
        for claim in list(self.running.values()):
            self._give_up(claim, claim.unfinished(STOPPED))

    async def close(self) -> None:
        """End all processes and wait for them."""
        self._retire(list(self._idle))
        for process in list(self._processes.values()):
            process.kill()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSING)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for process in self._idle:
            process.kill()
        self._threads.stop()

    def _retire(self, processes: list[IsolatedProcess]) -> None:
        for process in processes:
            self._idle.remove(process)
            self._start(self._end_process(process))

    async def _end_process(self, process: IsolatedProcess) -> None:
        try:
            await self._in_thread(process.retire)
        finally:
            # If this task is cancelled, its thread still waits for the process, and the interpreter for the thread.
            process.kill()

    async def _in_thread(self, function: Callable[..., Result], *args: object) -> Result:
        return await self._threads.run(partial(function, *args))

    def _start(self, work: Coroutine[None, None, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring_up(self) -> None:
        """Start a process that waits for an object."""
        try:
            process = await self._start_process()
        finally:
            self._starting = False
        if process:
            self._keep(process)
            self._wake()

    async def _start_process(self) -> IsolatedProcess | None:
        process = IsolatedProcess("stator.extensions.isolation", grace=HANDING_BACK)
        try:
            await self._in_thread(process.start, self._options)
        except (NotStarted, ProcessFailed) as error:
            self._note_failure(error)
            return None
        except BaseException:
            process.kill()
            raise
        self._failed = 0
        return process

    def _keep(self, process: IsolatedProcess) -> None:
        process.idle_since = time.monotonic()
        self._idle.append(process)

    async def _carry_out(self, claim: Claim, waiting: IsolatedProcess | None) -> None:
        key = id(claim)
        # The waiting process may have been retired while the object was claimed.
        process = waiting or await self._start_process()
        if process is None or not claim.may_begin:
            if process:
                self._keep(process)
            self._end(claim, Released())
            return
        self._processes[key] = process
        try:
            if key in self.running:
                self._note_answer(claim, await self._in_thread(_attempt, process, claim, _request(claim)))
            if process.is_usable:
                self._keep(process)
            else:
                await self._in_thread(process.end)
        except ProcessFailed as error:
            if process.stacks:
                await self._in_thread(report_held, claim, process.stacks)
            self._note_death(claim, error.code)
        except BaseException:
            process.kill()
            raise
        finally:
            self._processes.pop(key)

    def _note_answer(self, claim: Claim, answer: IsolatedAnswer) -> None:
        if answer["ended"] == "not begun":
            self._end(claim, Released())
        elif self._forget(claim):
            self._on_answer(claim, answer)

    def _note_death(self, claim: Claim, code: int | None) -> None:
        if self._forget(claim):
            fields = {"model": claim.operations.label, "pk": str(claim.pk), "state": claim.state.name}
            logger.warning("stator.isolated_process_died", extra={**fields, "exit_code": code})
            self._on_answer(claim, {})

    def _note_failure(self, error: Exception) -> None:
        pause = PAUSES[min(self._failed, len(PAUSES) - 1)]
        self._failed += 1
        self._starts_at = time.monotonic() + pause
        fields = {"error": str(error), "retry_in": pause if self._works else None}
        logger.error("stator.isolated_process_failed", extra=fields)

    def _give_up(self, claim: Claim, outcome: Outcome) -> None:
        if process := self._processes.get(id(claim)):
            # The process is killed before the outcome is recorded: from then on, other workers may take the row.
            process.kill()
        self._end(claim, outcome)

    def _end(self, claim: Claim, outcome: Outcome) -> None:
        if self._forget(claim):
            self._record(claim, outcome)

    def _forget(self, claim: Claim) -> bool:
        self._ended_at.pop(id(claim), None)
        claim.free()
        return self.running.pop(id(claim), None) is not None


def _request(claim: Claim) -> Request:
    operations = claim.operations
    around = Surroundings.here(operations.alias, operations.scope.path).as_request()
    own = {"token": claim.token.hex, "worker": operations.worker_id, "name": name_of(operations.worker_id)}
    return cast(Request, {"model": operations.label, **own, **around})


def _attempt(process: IsolatedProcess, claim: Claim, request: Request) -> IsolatedAnswer:
    """Return the answer of the process once the attempt is recorded."""
    claim.started = time.monotonic()
    process.reached = partial(claim.take_news, "reached")
    answer = process.ask(request)
    while "extended" in answer:
        claim.note_extension(answer["extended"], time.monotonic())
        answer = process.answer()
    return cast(IsolatedAnswer, answer)
