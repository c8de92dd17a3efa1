"""Which scopes a worker serves: on an ordinary site each of its databases, all the time."""

from typing import Any, Protocol

from stator.scopes import Scope
from stator.statements import Statement
from stator.worker.outage import Outages
from stator.worker.startup import Scopes


class Serving:
    """The scopes of a worker that are there from its start to its end.

    ``looks_soon``: another scope is to be looked into now.
    """

    looks_soon = False

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    async def begin(self) -> None:
        """Prepare the scopes that are served from the start."""
        await self._worker.reach(self._worker.tables.examine)
        await self._worker.reach(self._start)

    async def _start(self) -> None:
        await self._worker.send_start("")

    async def look(self, outages: Outages) -> None:
        """Serve other scopes, if they have got work."""

    def call(self, scope: Scope) -> bool:
        """Have a scope that is not served looked into; return whether there is such a one."""
        return False

    def labels(self) -> dict[Scope, list[str]]:
        """Return the labels of the models in each scope that is not served now; any thread may call it."""
        return {}

    def write(self, alias: str, paths: list[str], statement: Statement) -> None:
        """Send a statement in several of those scopes, in the calling thread."""


class Served(Protocol):
    """What tells a worker its scopes, if they are not just the databases: call it to find them, and why others lack."""

    def __call__(self) -> tuple[Scopes, dict[str, str]]: ...

    def follow(self) -> None:
        """Prepare the process, before its threads open connections."""

    def serving(self, worker: Any, scopes: Scopes) -> Serving:
        """Return how a worker serves them."""
