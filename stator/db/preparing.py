"""Preparation before a handler is called: if it fails, the attempt did not take place."""

import random

from stator.db.retry import is_of_database, is_passing
from stator.exceptions import LeaseLost, NotBegun
from stator.graph.failures import describe

# Seconds until the next attempt, at most: after passing trouble, and after an error that somebody has to fix.
SOON, LATER = 2.0, 60.0


def not_begun(error: BaseException) -> NotBegun:
    """Return the exception to raise instead of an error that came before the handler was called."""
    reason = f"the attempt did not begin: {describe(error).message.partition(chr(10))[0]}"
    stands_for = NotBegun((SOON if is_passing(error) else LATER) * random.uniform(0.5, 1.0), reason)
    stands_for.__cause__ = error
    return stands_for


class Preparing:
    """A context before the call of a handler: raises errors of the database as :class:`NotBegun`."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, LeaseLost) and is_of_database(error):
            raise not_begun(error) from error


# It has no state, so one instance is enough.
PREPARING = Preparing()
