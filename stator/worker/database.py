"""The threads of one process that send its statements, each with its own connections."""

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.db import connections

from stator.db.interface import Operations
from stator.worker.threads import DatabaseThread

Params = ParamSpec("Params")
Result = TypeVar("Result")


class DatabaseThreads:
    """Threads for ``claims``, ``records`` and ``duties``, and one for the receivers that ``prepare`` the project.

    There is only one thread if a database allows a single writer.
    """

    def __init__(self, operations: list[Operations]) -> None:
        aliases = dict.fromkeys(each.alias for each in operations)
        if all(each.capabilities.concurrent_writers for each in operations):
            self._threads = [DatabaseThread(f"stator-{name}", aliases) for name in ("claim", "record", "schedule")]
            self._threads.append(DatabaseThread("stator-prepare"))
        else:
            self._threads = [DatabaseThread("stator-database")] * 4
        self.claims, self.records, self.duties, self._receivers = self._threads

    async def record(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Record in the recording thread or, if that has lost its connection, in the claiming one.

        The first argument of the function is the operations.
        """
        operations: Any = args[0]
        spare = not self.records.is_connected(operations.alias) and self.claims.is_connected(operations.alias)
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
