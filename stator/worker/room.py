"""The room of a process: how many more rows of each model it can begin, by what runs their attempts."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from stator.conf import Settings
from stator.db.interface import Claim
from stator.worker.thread_pool import ThreadPool

# Short attempts are claimed ahead. For each place: the seconds of their work, and their number at most. The last number
# is the longest average run time, in seconds, that counts as short.
AHEAD, MAX_AHEAD = 0.05, 99
SHORT = 0.1

# A handler that is new or was slow gets nothing claimed ahead until the average of its run times has come down.
OLD_PART, NEW_PART = 0.9, 0.1
NEW = 2 * SHORT

# After this many rows in a row that needed no thread, the next ones are claimed as if none did.
ALL_ON_LOOP = 100


class ThreadAttempt(Protocol):
    """An attempt that a thread makes without the loop. If it raises, the asynchronous handler goes on from there."""

    def run_in_thread(self) -> object:
        """Return what the handler would return."""

    def give_up(self) -> None:
        """Note, on the loop, that nobody waits for it any more."""


class CallThreads:
    """The threads of ``pool``: they call the project's code for some of the rows of a model with asynchronous handlers.

    ``is_needed``: whether a claimed row may need a thread. ``spare(worker_id, True)`` lets claims of a worker leave out
    such rows, and returns whether other rows may exist; with False, claims take all rows again. ``attempt_of``: what
    makes the attempt of a claimed row in a thread, None if the loop has to.
    """

    def __init__(
        self,
        pool: ThreadPool,
        is_needed: Callable[[Claim], bool],
        spare: Callable[[str, bool], bool],
        attempt_of: Callable[[Claim], ThreadAttempt | None],
    ) -> None:
        self.pool, self.spare, self.attempt_of = pool, spare, attempt_of
        self._is_needed = is_needed
        # Rows that were claimed since the last row with a synchronous handler.
        self._on_loop = 0

    @property
    def free_of_stuck(self) -> int:
        """The number of threads; none if calls that do not return hold them all."""
        return 0 if self.pool.exhausted else self.pool.count

    @property
    def are_expected(self) -> bool:
        """Whether rows that are claimed now may need a thread: one of the latest did, or few are known."""
        return self._on_loop < ALL_ON_LOOP

    def note_claimed(self, claim: Claim) -> bool:
        """Return whether a claimed row may need a thread."""
        is_needed = self._is_needed(claim)
        self._on_loop = 0 if is_needed else self._on_loop + 1
        return is_needed


class Room:
    """The places of one process: ``CONCURRENCY`` in all; handler threads take up to ``THREADS`` of them.

    ``per_model``: attempts by the label of their model.
    ``placed``: attempts on the loop that run or have a place.
    ``threaded``: attempts in handler threads or waiting for one; ``ahead_of_threads`` of them were claimed ahead.
    ``thread_freed``: when an attempt in a thread last ended, or the first one arrived.
    ``stuck``: threads held by an attempt that was given up, by its first claim.
    ``call_threads``: by model, the threads that asynchronous handlers need.
    ``calling``: the attempts that hold such a thread or wait for one.

    If a model's attempts are short, more are claimed than there are places: a claim for each handful would cost more
    than the attempts. They displace nothing else: other attempts are claimed as if the waiting ones were not there.
    """

    def __init__(self, settings: Settings) -> None:
        self.placed = 0
        self.threaded = self.ahead_of_threads = 0
        self.thread_freed = 0.0
        self.stuck: set[int] = set()
        self.call_threads: dict[str, CallThreads] = {}
        self.calling: Counter[str] = Counter()
        self._settings = settings
        self.per_model: Counter[str] = Counter()
        self._runtimes: dict[tuple[str, bool], float] = {}

    def rows(self, label: str, is_async: bool, batch: int, waiting: int, *, without_threads: bool = False) -> int:
        """Return how many more rows of this model may be claimed if they are attempted ``batch`` at a time.

        ``waiting``: attempts on the loop that have no place yet. ``without_threads``: rows that need no thread.
        """
        threads = self.call_threads.get(label)
        calls = is_async and threads is not None and threads.are_expected and not without_threads
        room = self._on_the_loop(label, batch, waiting, calls=calls) if is_async else self._in_threads(label, batch)
        if threads and calls:
            room = min(room, self._worth(label, threads.free_of_stuck, self.calling[label]))
        if self._settings.CONCURRENCY_PER_MODEL:
            room = min(room, self._settings.CONCURRENCY_PER_MODEL - self.per_model[label])
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

    def ahead(self, label: str, is_async: bool, places: int) -> int:
        """Return how many attempts of a model may wait for ``places``: as many as begin within a moment.

        If the attempts are not short, return 0.
        """
        seconds = self._runtimes.get((label, is_async), NEW)
        return int(places * min(MAX_AHEAD, AHEAD / max(seconds, 1e-6))) if seconds <= SHORT else 0

    def are_short(self, label: str, is_async: bool) -> bool:
        """Return whether the attempts of a model are known to be short."""
        return self._runtimes.get((label, is_async), NEW) <= SHORT

    def took(self, label: str, is_async: bool, seconds: float) -> None:
        """Note how long an attempt took on the loop, or in a thread: an average that a slow one raises at once."""
        key = label, is_async
        self._runtimes[key] = max(seconds, OLD_PART * self._runtimes.get(key, NEW) + NEW_PART * seconds)

    def surplus(self, label: str) -> int:
        """Return how many attempts, if they are not short, wait for a thread that would not begin soon."""
        return max(0, self.calling[label] - self.call_threads[label].free_of_stuck)

    def _on_the_loop(self, label: str, batch: int, waiting: int, *, calls: bool) -> int:
        places = self._settings.CONCURRENCY
        free = places - self.placed - min(self.threaded, self.threads)
        if batch > 1 or not self.are_short(label, not calls) or free <= 0:
            return free
        # Enough for two claims, so that the next is in progress while the attempts of one run.
        most = min(places + self.ahead(label, not calls, places), max(places, 2 * self._settings.BATCH_SIZE))
        return most - waiting if waiting <= most // 2 else 0

    def _in_threads(self, label: str, batch: int) -> int:
        free = self._settings.CONCURRENCY - self.placed
        if free < self.threads:
            return free - self.threaded
        if batch > 1 or not self.are_short(label, False):
            soon_over = time.monotonic() - self.thread_freed < 2 * AHEAD
            return self.threads - self.threaded + (self.ahead_of_threads if soon_over else 0)
        return self._worth(label, self.threads, self.threaded)

    def _worth(self, label: str, threads: int, held: int) -> int:
        """Return the room for ``threads``: 0 while enough attempts wait to keep them busy until a later claim."""
        ahead = self.ahead(label, False, threads)
        room = threads + ahead - held
        return room if room >= max(1, ahead // 2) else 0
