"""Steps that need databases: repeated until each is reached; the outage of one does not block work on another."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stator.db.retry import is_of_schema, is_passing, suspends
from stator.texts import one_line
from stator.worker.tables import Tables

Result = TypeVar("Result")

logger = logging.getLogger("stator.worker")

# Seconds between attempts to reach a database; short, so that work resumes soon after it is back.
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)

TABLES = ""


class Outages(dict[str, Exception]):
    """The errors of one step that goes through several databases, by alias.

    ``alias in outages``: that database is unreachable and is not used again in this step. An error about a missing
    table or column interrupts only its own part of the step, so it is kept under ``TABLES``, which is no alias.
    """

    @contextmanager
    def noted(self, alias: str) -> Iterator[None]:
        """Call :meth:`note` with an error that the block raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised by ``note`` if it is another error
            self.note(alias, error)

    def note(self, alias: str, error: Exception) -> None:
        """Keep an outage of a database, or an error about a missing table or column, until the end of the step.

        Any other error is raised. A lock timeout is dropped, and so is the loss of a node behind the database: the
        waiting code has noted it and leaves the model alone for a while.
        """
        if is_of_schema(error):
            self.setdefault(TABLES, error)
        elif not is_passing(error):
            raise error
        elif not suspends(error):
            self[alias] = error

    def raise_first(self) -> None:
        """Raise the first error that was kept, at the end of the step, so that the step is repeated."""
        for error in (self.get(TABLES), *self.values()):
            if error:
                raise error


async def reach(
    step: Callable[[], Awaitable[Result]],
    unreachable: set[Callable[[], object]],
    has_no_time: Callable[[], bool],
    tables: Tables,
) -> Result | None:
    """Return the result of the step, repeating it as needed; None if there is no time to wait.

    Until it succeeds, the step is in ``unreachable``. After an error about a missing table or column, the step is
    repeated without the models that ``tables`` finds incomplete. If it finds none, the step is repeated at most once
    for each pause.
    """
    changes = tables.changes
    try:
        return await step()
    except Exception as error:  # noqa: BLE001 - raised again unless it passes
        return await _repeat(step, error, changes, unreachable, has_no_time, tables)


async def _repeat(
    step: Callable[[], Awaitable[Result]],
    error: Exception,
    changes: int,
    unreachable: set[Callable[[], object]],
    has_no_time: Callable[[], bool],
    tables: Tables,
) -> Result | None:
    """Repeat a step that has failed, as :func:`reach` says; ``changes`` of ``tables`` were read before the step."""
    pauses = iter(PAUSES)
    while True:
        if not await _is_repaired(error, changes, tables):
            pause = next(pauses, 0.0 if is_of_schema(error) else PAUSES[-1])
            if not (pause and (is_of_schema(error) or is_passing(error))):
                raise error
            unreachable.add(step)
            if has_no_time():
                return None
            pause *= random.uniform(0.5, 1.0)
            fields = {"error": type(error).__name__, "message_text": one_line(error), "retry_in": pause}
            logger.warning("stator.database_unreachable", extra=fields)
            await asyncio.sleep(pause)
        changes = tables.changes
        try:
            result = await step()
        except Exception as again:  # noqa: BLE001 - raised above unless it passes
            error = again
        else:
            unreachable.discard(step)
            return result


async def _is_repaired(error: Exception, changes: int, tables: Tables) -> bool:
    """Return whether an error is about a table or column of a model that was left out since the step began."""
    if not is_of_schema(error):
        return False
    await tables.examine()
    return tables.changes != changes
