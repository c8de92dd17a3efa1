"""Which scopes a worker serves: on an ordinary site each of its databases, all the time."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from django.db.models import Model

from stator.db.values import Row
from stator.scopes import Scope
from stator.statements import Statement
from stator.worker.outage import Outages
from stator.worker.startup import Scopes

if TYPE_CHECKING:
    from stator.worker.worker import Worker


class Serving:
    """The scopes of a worker that are there from its start to its end.

    ``looks_soon``: another scope is to be looked into now.
    """

    looks_soon = False

    def __init__(self, worker: "Worker") -> None:
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

    def scopes(self) -> Scopes:
        """Return the scopes to serve; raise :class:`Unusable` without any."""

    def follow(self) -> None:
        """Prepare the process, before its threads open connections."""

    def serving(self, worker: "Worker", scopes: Scopes) -> Serving:
        """Return how a worker serves them."""

    def read(self, alias: str, paths: Sequence[str], statement: Statement) -> dict[str, Row]:
        """Return the row that a statement finds on each path, without those where it cannot be sent."""

    def by_filled(self, alias: str, scopes: Scopes) -> dict[tuple[type[Model], ...], list[Scope]]:
        """Return scopes by the models that may have rows there."""

    def alike(self, alias: str, scopes: Iterable[Scope]) -> list[list[Scope]]:
        """Return scopes of a database in groups with the same tables, the largest group first."""
