"""Attempts of objects that lost many leases in a row: made alone, so that a crash takes no other object along."""

import time
from collections.abc import Callable

from stator.db.interface import Claim

# Seconds that other claims wait for an object that is attempted alone in this process; then they run for as long.
PATIENCE = 5.0


class Alone:
    """Attempts in this process while nothing else runs.

    ``begin`` starts attempts; ``is_empty`` says whether none runs. Other claims wait meanwhile, but for at most
    ``PATIENCE`` seconds at a time, and then have as long for themselves. ``engaged``: an object is or was wanted, so
    :meth:`needs_room` has to be asked before other claims.
    """

    def __init__(self, begin: Callable[[list[Claim]], None], is_empty: Callable[[], bool]) -> None:
        # Claims that run elsewhere, by their id().
        self.running: dict[int, Claim] = {}
        self.engaged = False
        self._begin = begin
        self._is_empty = is_empty
        self._begun = False
        self._since: float | None = None
        self._rests_until = 0.0

    def has_room(self, *, make: bool = False) -> bool:
        """Return whether one more object may be claimed now; ``make``: begin to make room if there is none."""
        return self._is_empty() and time.monotonic() >= self._rests_until

    def begin(self, claims: list[Claim]) -> None:
        """Start the attempts for these claims."""
        self._begun = self.engaged = self._begun or bool(claims)
        self._begin(claims)

    def needs_room(self, is_wanted: bool) -> bool:
        """Return whether other claims have to wait; ``is_wanted``: there may be an object to attempt."""
        now = time.monotonic()
        self._begun = self._begun and not self._is_empty()
        self.engaged = is_wanted or self._begun
        if not self.engaged:
            self._since = None
            return False
        if now < self._rests_until:
            return False
        self._since = self._since or now
        if now - self._since < PATIENCE:
            return True
        self._since, self._rests_until = None, now + PATIENCE
        return False

    def sweep(self) -> None:
        """End attempts that take too long."""

    def cancel_ended(self, keys: set[int]) -> None:
        """End the attempts of claims, given by their ``id()``, that have ended."""

    def release_all(self) -> None:
        """Give up running attempts and release their rows."""

    async def close(self) -> None:
        """End the processes."""
