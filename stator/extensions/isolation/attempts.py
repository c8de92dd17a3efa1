"""Attempts of objects that lost many leases: made and recorded here for the claims that requests name."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import BinaryIO, TextIO, TypeVar
from uuid import UUID

from stator import signals
from stator.conf import load_settings
from stator.db import operations_in
from stator.db.claims import complete
from stator.db.instances import load_rows
from stator.db.interface import Claim, Operations
from stator.db.preparing import LATER
from stator.db.retry import is_passing
from stator.db.suspensions import Suspensions
from stator.exceptions import NotBegun
from stator.extensions.isolation.messages import SAY_EVERY, IsolatedAnswer, Request
from stator.extensions.isolation.surroundings import Surroundings
from stator.extensions.reports.attempt_log import keep_logs
from stator.extensions.watchdog.last_words import report_hanging
from stator.extensions.watchdog.watchdog import Watchdog
from stator.graph.outcomes import Released
from stator.models import StatorModel
from stator.rows.meta import by_database, managed, model_named
from stator.rows.news import send_news
from stator.rows.workers import give_name
from stator.scopes import Scope
from stator.worker.around import calls_of, end_extensions
from stator.worker.executor import STOPPED, Attempted, attempt_async, attempt_sync
from stator.worker.health import Health
from stator.worker.outage import reach
from stator.worker.recorder import Recorder
from stator.worker.scheduler import send_in
from stator.worker.tables import Tables
from stator.worker.thread_pool import database_thread_for_handlers
from stator.worker.threads import DatabaseThread

Adopted = TypeVar("Adopted", bound=Claim)
Say = Callable[[IsolatedAnswer], None]


async def serve(requests: BinaryIO, answers: TextIO, database: str | None, *, has_paths: bool) -> None:
    """Attempt the requested objects until the requests end.

    ``database``: the only one of the worker, if it has one. ``has_paths``: the scopes of the worker have
    paths; on each of these the project prepares itself before the first object.
    """
    keep_logs()
    lock = threading.Lock()

    def say(said: IsolatedAnswer) -> None:
        # Handlers extend their leases in threads of their own. Without a worker, the requests end too.
        with lock, suppress(BrokenPipeError):
            answers.write(json.dumps(said) + "\n")

    # A handler that blocks the event loop blocks nothing else, but only the watchdog would end it before its time
    # limit. If it holds the interpreter too, the worker gets its stack between the answers.
    watchdog = Watchdog(
        load_settings().WATCHDOG, None, str, tells=False, parting=report_hanging, stacks=answers.fileno()
    )
    watchdog.start()
    ticking = asyncio.create_task(_tick(watchdog))
    thread, reader = DatabaseThread("stator-handler", handlers=True), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), requests)
    try:
        async with database_thread_for_handlers():
            preparation = Preparation(database, thread)
            if not has_paths:
                await preparation.send("")
            say({"ready": True})
            await _attempt_all(reader, thread, say, preparation)
    finally:
        ticking.cancel()
        watchdog.stop()
        thread.stop(2.0)
        end_extensions(load_settings())


async def _attempt_all(
    reader: asyncio.StreamReader, thread: DatabaseThread, say: Say, preparation: "Preparation"
) -> None:
    line = await reader.readline()
    while line:
        request: Request = json.loads(line)
        await preparation.send(request["schema"])
        attempt = IsolatedAttempt(request, say)
        answering = asyncio.create_task(attempt.answer(thread))
        # The next request comes after the answer to this one.
        reading = asyncio.create_task(reader.readline())
        waits = partial(asyncio.wait, [answering, reading], timeout=SAY_EVERY, return_when=asyncio.FIRST_COMPLETED)
        while not (await waits())[0]:
            attempt.send_news()
        if not answering.done() and not await reading:
            # The worker is gone.
            await attempt.hand_back()
            os.killpg(0, signal.SIGKILL)
        say(await answering)
        line = await reading


async def _tick(watchdog: Watchdog) -> None:
    while True:
        watchdog.tick()
        await asyncio.sleep(0.1)


class Preparation:
    """The sender of the signals of a worker's start and first pass, which let the project load what handlers need.

    ``database``: the only one of the worker, if it has one. ``thread`` calls the receivers.
    """

    def __init__(self, database: str | None, thread: DatabaseThread) -> None:
        self.health = Health()
        self._thread = thread
        self._prepared: set[str] = set()
        self._served = by_database(managed(StatorModel.subclasses), database)

    def databases_of(self, model: type[StatorModel]) -> list[str]:
        """Return the aliases of the databases where the worker serves a model; for receivers of ``on_schedule``."""
        return [alias for alias, models in self._served.items() if model in models]

    async def send(self, schema: str) -> None:
        """Send the signals in a schema, unless that was done."""
        if schema not in self._prepared:
            self._prepared.add(schema)
            send = partial(self._thread.run, self._send, schema)
            await reach(send, Suspensions(), lambda: False, Tables([], self._thread.run))

    def _send(self, schema: str) -> None:
        send_in([schema], signals.on_start, self)
        send_in([schema], signals.on_schedule, self, databases=sorted(self._served))


class IsolatedAttempt:
    """An attempt of the row that a request names; ``say`` tells the worker about extended leases."""

    def __init__(self, request: Request, say: Say) -> None:
        self._settings = load_settings()
        give_name(request["worker"], request["name"])
        model = model_named(request["model"])
        self._surroundings = Surroundings.of(request)
        scope = Scope(self._surroundings.using, self._surroundings.schema)
        self._operations = operations_in(scope, model, self._settings, request["worker"])
        self._token = UUID(request["token"])
        self._say = say
        self._claim: IsolatedClaim | None = None
        self._is_given_back = False

    async def answer(self, thread: DatabaseThread) -> IsolatedAnswer:
        """Make the attempt and record its outcome; return the answer."""
        with self._surroundings.entered():
            return await self._answer(thread)

    async def _answer(self, thread: DatabaseThread) -> IsolatedAnswer:
        try:
            claim = await thread.run(adopt, IsolatedClaim, self._operations, self._token)
        except Exception as error:
            if not (isinstance(error, NotBegun) or is_passing(error)):
                raise
            return {"ended": "not begun"}
        if claim is None or self._is_given_back:
            return {"ended": "lost"}
        self._claim = claim
        claim.say = self._say
        calls = calls_of(self._operations, claim.state)
        if claim.state.is_async:
            attempted = await attempt_async([claim], calls)
        else:
            attempted = await thread.run(attempt_sync, [claim], calls)
        return await self._record(attempted, thread)

    def send_news(self) -> None:
        """Tell the worker what the attempt has said of itself since the last time; the worker writes it."""
        if claim := self._claim:
            send_news(claim, self._say)

    async def hand_back(self) -> None:
        """Release the row: the end of its worker is no crash of this attempt, which counts if it has begun."""
        self._is_given_back = True
        outcome = self._claim.unfinished(STOPPED) if self._claim else Released()
        # The other thread may run the handler.
        thread = DatabaseThread("stator-hand-back")
        with self._surroundings.entered():
            if claim := await thread.run(adopt, Claim, self._operations, self._token):
                await self._record(Attempted([(claim, outcome)]), thread)

    async def _record(self, attempted: Attempted, thread: DatabaseThread) -> IsolatedAnswer:
        """Record the outcome of an attempt; wait as long as its database is unreachable."""
        suspended = Suspensions()
        recorder = Recorder(thread.run, 1, suspended)
        recorder.note_recorded(self._operations, attempted)
        for ended in attempted.ended:
            recorder.add(*ended)
        tables = Tables([self._operations], thread.run)
        while recorder.held:
            await recorder.came.wait()
            await reach(recorder.flush, suspended, lambda: False, tables)
        moved = [to for _, to in recorder.moved]
        return {"ended": "recorded", "moved": moved, "failed": recorder.failed, "lost": recorder.lost}


def adopt(kind: type[Adopted], operations: Operations, token: UUID) -> Adopted | None:
    """Return the claim that another process made with this token, or None if it has ended.

    Raise ``NotBegun`` if the code here, which is newer or older than the code of that process, does not know its state.
    """
    held, claimed = operations.rows.filter(state_claim__isnull=False, state_claim=token), time.monotonic()
    for instance in load_rows(held[:1]):
        if (state := (field := operations.state_field).state_of(instance)) is None:
            raise NotBegun(LATER, f"{operations.graph.__name__} has no state {field.of(instance)!r} in this process")
        [claim] = complete([kind(operations.part_with(instance), instance, state, token, claimed)])
        return claim
    return None


class IsolatedClaim(Claim):
    """A claim that the worker renews; it tells the worker when a handler extends the lease."""

    __slots__ = ("say",)

    say: Say

    def extend(self, seconds: float) -> bool:
        """Extend the lease as for any claim, and tell the worker."""
        stands = super().extend(seconds)
        if stands:
            self.say({"extended": seconds})
        return stands
