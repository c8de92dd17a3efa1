"""Steps that need databases: repeated until each database is reached; one that is away does not block the others."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stator.db.retry import is_lock_timeout, is_of_schema, is_passing
from stator.texts import one_line
from stator.worker.schema import Schema

Result = TypeVar("Result")

logger = logging.getLogger("stator.worker")

# Seconds between attempts to reach a database; short, so that work resumes soon after it is back.
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)


class Outages:
    """The errors of one step that goes through several databases.

    ``alias in outages``: that database is away and is not used again in this step. A table that lacks something
    interrupts nothing but its own part of the step.
    """

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}
        self._of_schema: list[Exception] = []

    def __contains__(self, alias: str) -> bool:
        return alias in self._errors

    @contextmanager
    def noted(self, alias: str) -> Iterator[None]:
        """Collect an outage of a database, or an error about a missing table or column, until the end of the step.

        A lock timeout is neither: the waiting code has noted it and leaves the model alone for a while.
        """
        try:
            yield
        except Exception as error:
            if is_of_schema(error):
                self._of_schema.append(error)
            elif not is_passing(error):
                raise
            elif not is_lock_timeout(error):
                self._errors[alias] = error

    def tell(self) -> None:
        """Raise the first collected error, at the end of the step, so that the step is repeated."""
        for error in (*self._of_schema, *self._errors.values()):
            raise error


async def reach(
    step: Callable[[], Awaitable[Result]],
    unreachable: set[Callable[[], object]],
    has_no_time: Callable[[], bool],
    schema: Schema,
) -> Result | None:
    """Return the result of the step, repeating it as needed; None if there is no time to wait.

    Until it succeeds, the step is in ``unreachable``. After an error about a missing table or column, the step is
    repeated without the models that ``schema`` finds incomplete. If it finds none, the step is repeated at most as
    often as there are pauses.
    """
    pauses = iter(PAUSES)
    while True:
        changes = schema.changes
        try:
            result = await step()
        except Exception as error:
            if is_of_schema(error):
                await schema.examine()
                if schema.changes != changes:
                    continue
                pause = next(pauses, 0.0)
            else:
                pause = next(pauses, PAUSES[-1])
            if not (pause and (is_of_schema(error) or is_passing(error))):
                raise
            unreachable.add(step)
            if has_no_time():
                return None
            pause *= random.uniform(0.5, 1.0)
            fields = {"error": type(error).__name__, "message_text": one_line(error), "retry_in": pause}
            logger.warning("stator.database_unreachable", extra=fields)
            await asyncio.sleep(pause)
        else:
            unreachable.discard(step)
            return result
