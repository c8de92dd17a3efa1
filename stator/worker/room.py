"""How many attempts one process runs at once, and how many it claims ahead of those."""

import time
from collections import Counter

from stator.conf import Settings

# Short attempts are claimed ahead for about so many seconds of work per place.
AHEAD = 0.05
MOST_AHEAD = 50

# Of a handler that is new, or has been slow, nothing is claimed ahead until its runs have come down.
KEPT, NEW = 0.9, 0.1


class Room:
    """The places of one process: ``CONCURRENCY`` in all, of which handler threads take up to ``THREADS``.

    ``placed``: attempts on the loop that run or have a place to. ``threaded``: those in handler threads or waiting for
    one; ``ahead_of_threads``: how many of them were claimed ahead. ``thread_freed``: when one last ended, or the first
    came. ``stuck``: threads that are held by an attempt that was given up, by its first claim.

    Where a model's attempts are short, more are claimed than there are places: a claim for each handful would cost more
    than the attempts. They keep nothing else out: what is not short is claimed for the places that are free but for
    them.
    """

    def __init__(self, settings: Settings) -> None:
        self.placed = 0
        self.threaded = self.ahead_of_threads = 0
        self.thread_freed = 0.0
        self.stuck: set[int] = set()
        self._settings = settings
        self._per_model: Counter[str] = Counter()
        self._runtimes: dict[tuple[str, bool], float] = {}

    def rows(self, label: str, is_async: bool, batch: int, waiting: int) -> int:
        """How many more rows of this model may be claimed that are attempted ``batch`` at a time.

        ``waiting``: attempts on the loop that have no place yet.
        """
        room = self._on_the_loop(label, batch, waiting) if is_async else self._in_threads(label, batch)
        if self._settings.CONCURRENCY_PER_MODEL:
            room = min(room, self._settings.CONCURRENCY_PER_MODEL - self._per_model[label])
        return max(0, min(room * batch, max(self._settings.BATCH_SIZE, batch)))

    @property
    def has_place(self) -> bool:
        """Whether one more attempt may begin on the loop."""
        # Without a call for each part: it is asked ahead of each attempt.
        threads = min(self.threaded, self._settings.THREADS - len(self.stuck)) if self.threaded else 0
        return self.placed + threads < self._settings.CONCURRENCY

    @property
    def threads(self) -> int:
        """How many threads there are that are not stuck."""
        return self._settings.THREADS - len(self.stuck)

    def ahead(self, label: str, is_async: bool) -> int:
        """How many short attempts of a model there may be for each place."""
        return max(1, min(MOST_AHEAD, int(AHEAD / max(self._runtimes.get((label, is_async), AHEAD), 1e-6))))

    def took(self, label: str, is_async: bool, seconds: float) -> None:
        """Note how long an attempt took: a moving average, so that one slow handler makes the next claims smaller."""
        key = label, is_async
        self._runtimes[key] = max(seconds, KEPT * self._runtimes.get(key, AHEAD) + NEW * seconds)

    def enter(self, label: str, count: int) -> None:
        """Note attempts of a model that are claimed, or with a negative number over."""
        self._per_model[label] += count

    def _on_the_loop(self, label: str, batch: int, waiting: int) -> int:
        free = self._settings.CONCURRENCY - self.placed - min(self.threaded, self.threads)
        ahead = self.ahead(label, True)
        if batch > 1 or ahead == 1 or free <= 0:
            return free
        # Two claims: while the attempts of one run, the next is on its way.
        most = min(self._settings.CONCURRENCY * ahead, max(self._settings.CONCURRENCY, 2 * self._settings.BATCH_SIZE))
        return _worth(most - waiting, most)

    def _in_threads(self, label: str, batch: int) -> int:
        free = self._settings.CONCURRENCY - self.placed
        ahead = self.ahead(label, False)
        if free < self.threads:
            return free - self.threaded
        if batch > 1 or ahead == 1:
            soon_over = time.monotonic() - self.thread_freed < 2 * AHEAD
            return self.threads - self.threaded + (self.ahead_of_threads if soon_over else 0)
        return _worth(self.threads * ahead - self.threaded, self.threads * ahead)


def _worth(room: int, most: int) -> int:
    # While there is work ahead, a claim waits until it is worth its statement.
    return room if room >= most // 2 else 0
