"""Who watches the statements that a context sends to the coordinator; imports neither models nor the driver."""

from contextvars import ContextVar
from typing import Protocol


class StatementWatch(Protocol):
    """Decides for how long a statement waits."""

    def is_in_vain(self, waited: float) -> str:
        """Return why a statement that has waited for so many seconds is given up; "" if it goes on."""


WATCH: ContextVar[StatementWatch | None] = ContextVar("stator_watch", default=None)
