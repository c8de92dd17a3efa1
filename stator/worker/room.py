"""Capacity of one process: how many attempts it runs at once, and how many more it claims ahead."""

import time
from collections import Counter

from stator.conf import Settings

# Seconds of work per place for which short attempts are claimed ahead.
AHEAD = 0.05
MOST_AHEAD = 50

# A handler that is new or was slow gets nothing claimed ahead until the average of its run times has come down.
KEPT, NEW = 0.9, 0.1


class Room:
    """The places of one process: ``CONCURRENCY`` in all, of which handler threads take up to ``THREADS``.

    ``placed``: attempts on the loop that run or have a place. ``threaded``: attempts in handler threads or waiting for
    one; ``ahead_of_threads``: how many of them were claimed ahead. ``thread_freed``: when one last ended, or the first
    one came. ``stuck``: threads held by an attempt that was given up, by its first claim.

    If a model's attempts are short, more are claimed than there are places: a claim for each handful would cost more
    than the attempts. They displace nothing else: other attempts are claimed as if the waiting ones were not there.
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
        """Return how many more rows of this model may be claimed if they are attempted ``batch`` at a time.

        ``waiting``: attempts on the loop that have no place yet.
        """
        room = self._on_the_loop(label, batch, waiting) if is_async else self._in_threads(label, batch)
        if self._settings.CONCURRENCY_PER_MODEL:
            room = min(room, self._settings.CONCURRENCY_PER_MODEL - self._per_model[label])
        return max(0, min(room * batch, max(self._settings.BATCH_SIZE, batch)))

    @property
    def has_place(self) -> bool:
        """Whether one more attempt may begin on the loop."""
        # Inlined, because this is called before each attempt.
        threads = min(self.threaded, self._settings.THREADS - len(self.stuck)) if self.threaded else 0
        return self.placed + threads < self._settings.CONCURRENCY

    @property
    def threads(self) -> int:
        """The number of threads that are not stuck."""
        return self._settings.THREADS - len(self.stuck)

    def ahead(self, label: str, is_async: bool) -> int:
        """Return how many short attempts of a model there may be for each place."""
        return max(1, min(MOST_AHEAD, int(AHEAD / max(self._runtimes.get((label, is_async), AHEAD), 1e-6))))

    def took(self, label: str, is_async: bool, seconds: float) -> None:
        """Note how long an attempt took: a moving average that one slow handler raises at once."""
        key = label, is_async
        self._runtimes[key] = max(seconds, KEPT * self._runtimes.get(key, AHEAD) + NEW * seconds)

    def enter(self, label: str, count: int) -> None:
        """Note that attempts of a model are claimed or, with a negative number, over."""
        self._per_model[label] += count

    def _on_the_loop(self, label: str, batch: int, waiting: int) -> int:
        free = self._settings.CONCURRENCY - self.placed - min(self.threaded, self.threads)
        ahead = self.ahead(label, True)
        if batch > 1 or ahead == 1 or free <= 0:
            return free
        # Enough for two claims, so that the next is in progress while the attempts of one run.
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
    # While attempts are waiting, claim only when the room is worth a statement.
    return room if room >= most // 2 else 0
