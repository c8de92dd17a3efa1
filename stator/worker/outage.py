"""Steps that need the database: taken again and again until it can be reached."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from stator.db.retry import is_outage, is_retryable

logger = logging.getLogger("stator.worker")

# Waits between attempts to reach a database that is gone; short, so that work resumes soon after it is back.
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)


async def reach(step: Callable[[], Awaitable[Any]], unreachable: set[Any], has_no_time: Callable[[], bool]) -> Any:
    """What the step returns; None where there is no time to wait. Meanwhile it is among those that are unreachable."""
    pauses = iter(PAUSES)
    while True:
        try:
            result = await step()
        except Exception as error:
            if not (is_outage(error) or is_retryable(error)):
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
