"""Steps that need databases: repeated until each is reached; the outage of one does not block work on another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stator.db.retry import is_of_schema, is_passing, suspends
from stator.db.suspensions import ResumptionPace, Suspensions
from stator.texts import one_line
from stator.worker.tables import Tables

Result = TypeVar("Result")

logger = logging.getLogger("stator.worker")

# Seconds between attempts to reach a database; short, so that work resumes soon after it is back.
PACE = ResumptionPace(0.1, 2.0, varies=True)

# How often a step that fails because of a missing table or column is repeated if no model lacks one.
TRIES = 5

TABLES = ""


class Outages(Suspensions):
    """The errors of one turn through several databases, by alias.

    ``alias in outages``: that database is unreachable and is not used again in this turn. An error about a missing
    table or column interrupts only its own part of the turn, so it is kept under ``TABLES``, which is no alias.
    """

    @contextmanager
    def noted(self, alias: str) -> Iterator[None]:
        """Call :meth:`note` with an error that the block raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised by ``note`` if it is another error
            self.note(alias, error)

    def note(self, alias: str, error: Exception) -> None:
        """Keep an outage of a database, or an error about a missing table or column, until the end of the turn.

        Any other error is raised. A lock timeout is dropped, and so is the loss of a node behind the database: the
        waiting code has noted it and leaves the model alone for a while.
        """
        if is_of_schema(error):
            if TABLES not in self:
                self.suspend(TABLES, error)
        elif not is_passing(error):
            raise error
        elif not suspends(error):
            self.suspend(alias, error)

    def raise_first(self) -> None:
        """Raise the first error that was kept, so that the turn is repeated; the next turn begins without any."""
        held, self.held = self.held, {}
        for suspension in (held.get(TABLES), *held.values()):
            if suspension and isinstance(suspension.reason, Exception):
                raise suspension.reason


async def reach(
    step: Callable[[], Awaitable[Result]],
    suspended: Suspensions,
    has_no_time: Callable[[], bool],
    tables: Tables,
) -> Result | None:
    """Return the result of the step, repeating it as needed; None if there is no time to wait.

    Until it succeeds, the step is in ``suspended``. After an error about a missing table or column, the step is
    repeated without the models that ``tables`` finds incomplete. If it finds none, the step is repeated at most
    ``TRIES`` times.
    """
    while True:
        changes = tables.changes
        try:
            result = await step()
        except Exception as error:
            if await _is_repaired(error, changes, tables):
                continue
            if not (is_of_schema(error) or is_passing(error)):
                raise
            times = suspended.suspend(step, one_line(error), PACE).times
            if is_of_schema(error) and times > TRIES:
                raise
            if has_no_time():
                return None
            delay = suspended.remaining(step)
            fields = {"error": type(error).__name__, "message_text": one_line(error), "retry_in": delay}
            logger.warning("stator.database_unreachable", extra=fields)
        else:
            if suspended.held:
                suspended.end(step)
            return result
        await asyncio.sleep(delay)


async def _is_repaired(error: Exception, changes: int, tables: Tables) -> bool:
    """Return whether an error is about a table or column of a model that was left out since the step began."""
    if not is_of_schema(error):
        return False
    await tables.examine()
    return tables.changes != changes
