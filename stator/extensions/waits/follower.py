"""What moves do for waiting rows: a row that an object waited for reopens it."""

from django.db.models import Model

from stator.rows.followers import Follower
from stator.rows.waits import waiters_of, wake


class WaitFollower(Follower):
    """Reopens the parked rows that waited for rows to enter a state."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        self._waits = waiters_of(model)
        self.entries = frozenset(state for wait in self._waits for state in wait.until)

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Reopen rows; the next scheduling pass reopens rows that other transactions have locked."""
        for each in self._waits:
            if state in each.until:
                wake(each, using, pks)
