"""Threads for database work, and the connections of a thread after an error."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db.interface import Operations
from stator.exceptions import passable
from stator.worker.connections import check_connections, check_rested_connections, clean_connections, own_connections

Params = ParamSpec("Params")
Result = TypeVar("Result")

# The item of a queue that ends its thread.
STOP = None


class RunInThread(Protocol):
    """A function that calls another one in a thread with its own database connections."""

    def __call__(
        self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Awaitable[Result]:
        """Call ``function``; return its result or raise its error."""


class DatabaseThread:
    """One thread with its own database connections, for statements that must not block the event loop.

    It connects to ``aliases`` at its start, if it can, so that the threads of a process do so at the same time.
    ``handlers``: it runs handlers, which do not repeat what a dead connection fails.
    """

    def __init__(self, name: str, aliases: Iterable[str] = (), *, handlers: bool = False) -> None:
        self._aliases, self._handlers = tuple(aliases), handlers
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.connections: dict[str, BaseDatabaseWrapper] = {}
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call ``function`` in this thread; return its result or raise its error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._queue.put((loop, future, copy_context(), function, args, kwargs))
        return await future

    def is_connected(self, alias: str) -> bool:
        """Return whether the thread has an open connection, as far as is known; sends nothing."""
        return is_open(self.connections.get(alias))

    async def connect(self, alias: str) -> None:
        """Open the thread's connection if it has none."""
        await self.run(open_connection, alias)

    def stop(self, timeout: float) -> None:
        """End the thread after its current work and close its connections."""
        self._queue.put(STOP)
        self._thread.join(timeout)

    def _work(self) -> None:
        own_connections()
        for connection in connections.all():
            self.connections[connection.alias] = connection
        for alias in self._aliases:
            # The first statement will fail with this error too and report it.
            run_in_thread(open_connection, alias)
        while (call := self._queue.get()) is not STOP:
            loop, future, context, function, args, kwargs = call
            if self._handlers:
                check_rested_connections()
            # The context is the caller's and may select a schema.
            result, error = context.run(run_in_thread, function, *args, **kwargs)
            # Receivers of signals run here as well.
            clean_connections()
            call_soon(loop, settle, future, result, error)
            del call, future, context, result, error
        connections.close_all()


class DatabaseThreads:
    """Threads for ``claims``, ``records`` and ``duties``, and one for the receivers that ``prepare`` the project.

    There is only one thread if a database allows a single writer. ``needed``: the connections of each thread without
    which nothing is claimed.
    """

    def __init__(self, operations: Sequence[Operations]) -> None:
        aliases = dict.fromkeys(each.alias for each in operations)
        if all(each.capabilities.concurrent_writers for each in operations):
            self._threads = [DatabaseThread(f"stator-{name}", aliases) for name in ("claim", "record", "schedule")]
            self._threads.append(DatabaseThread("stator-prepare"))
        else:
            self._threads = [DatabaseThread("stator-database")] * 4
        self.claims, self.records, self.duties, self._receivers = self._threads
        self.needed = [self.records.connections]

    def may_claim(self, alias: str) -> bool:
        """Return whether what is claimed can be recorded and renewed, as far as is known; sends nothing."""
        # Not by all(), which would call another function for each claim.
        for held in self.needed:  # noqa: SIM110
            if not is_open(held.get(alias)):
                return False
        return True

    async def record(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Record in the recording thread or, if that has lost its connection, in the claiming one.

        The first argument of the function is the operations.
        """
        operations: Any = args[0]
        spare = not self.records.is_connected(operations.alias) and self.claims.is_connected(operations.alias)
        with operations.scope.enter():
            return await (self.claims if spare else self.records).run(function, *args, **kwargs)

    async def prepare(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call receivers in a thread of their own, which closes its connections afterwards."""
        if self._receivers is self.duties:
            return await self.duties.run(function, *args, **kwargs)
        return await self._receivers.run(_without_connections, partial(function, *args, **kwargs))

    def stop(self, timeout: float) -> None:
        """End the threads after their current work and close their connections."""
        for thread in dict.fromkeys(self._threads):
            thread.stop(timeout)


def _without_connections(function: Callable[[], Result]) -> Result:
    try:
        return function()
    finally:
        connections.close_all()


def is_open(connection: BaseDatabaseWrapper | None) -> bool:
    """Return whether Django's connection is open, as far as is known; any thread may call it."""
    drivers = connection.connection if connection else None
    return drivers is not None and not getattr(drivers, "closed", False)


def open_connection(alias: str) -> None:
    """Open this thread's connection unless it is open; raise if that is not possible."""
    connection = connections[alias]
    if not is_open(connection):
        connection.close()
        connection.ensure_connection()


def run_in_thread(
    function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
) -> tuple[Result | None, BaseException | None]:
    """Return ``(result, error)`` of a call in a context of its own; then the connections are usable or closed."""
    try:
        return copy_context().run(function, *args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who awaits it
        return None, error
    finally:
        tidy_connections()


def tidy_connections() -> None:
    """Close connections that an error broke, and drop the queries that DEBUG collects."""
    close_broken_connections()
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()


def close_broken_connections() -> None:
    """Close connections of this thread that an error left unusable; the next use opens new ones."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


async def tidy_connections_of_loop(*, close: bool = False) -> None:
    """Call :func:`tidy_connections` in the thread that runs Django's queries for asynchronous code.

    Connections are also checked at their next use. ``close``: close them, because none is needed for a while.
    """
    await sync_to_async(connections.close_all if close else _tidy_and_check)()


def _tidy_and_check() -> None:
    tidy_connections()
    check_connections()


def call_soon(loop: asyncio.AbstractEventLoop | None, function: Callable[..., object], *args: object) -> None:
    """Call a function on an event loop; do nothing if the loop is closed."""
    try:
        if loop is not None:
            loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        # The loop is closed: the worker has ended, and nobody waits for the answer.
        return


def settle(future: asyncio.Future[Result] | Future[Result], result: Result, error: BaseException | None) -> None:
    """Give a future its result or its error, unless it has one or nobody awaits it any more."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(passable(error))
