"""Steps that need databases: taken again until each can be reached; one that is away keeps none from the others."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stator.db.retry import is_outage, is_retryable

logger = logging.getLogger("stator.worker")

# Waits between attempts to reach a database that is gone; short, so that work resumes soon after it is back.
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)


class Outages:
    """What one step meets that goes through several databases: one that is away keeps it from none of the others.

    ``alias in outages``: that database is away, and is not asked again in this step.
    """

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}

    def __contains__(self, alias: str) -> bool:
        return alias in self._errors

    @contextmanager
    def noted(self, alias: str) -> Iterator[None]:
        """Keep an outage of a database until the end of the step."""
        try:
            yield
        except Exception as error:
            if not _is_passing(error):
                raise
            self._errors[alias] = error

    def tell(self) -> None:
        """Raise the first of them, at the end of the step, which is to be taken again."""
        for error in self._errors.values():
            raise error


async def reach(step: Callable[[], Awaitable[Any]], unreachable: set[Any], has_no_time: Callable[[], bool]) -> Any:
    """What the step returns; None where there is no time to wait. Meanwhile it is among those that are unreachable."""
    pauses = iter(PAUSES)
    while True:
        try:
            result = await step()
        except Exception as error:
            if not _is_passing(error):
                raise
            unreachable.add(step)
            if has_no_time():
                return None
            pause = next(pauses, PAUSES[-1]) * random.uniform(0.5, 1.0)
            logger.warning("stator.database_unreachable", extra={"error": type(error).__name__, "retry_in": pause})
            await asyncio.sleep(pause)
        else:
            unreachable.discard(step)
            return result


def _is_passing(error: Exception) -> bool:
    return is_outage(error) or is_retryable(error)
