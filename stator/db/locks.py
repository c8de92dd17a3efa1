"""Lock timeouts of a worker's statements, and which of its steps are skipped after one.

A migration may lock a table for minutes. A statement that waited for it would hold up its thread's work for other
models, so it gives up soon and is tried again later.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stator.capabilities import Capabilities
from stator.db.retry import is_lock_timeout

logger = logging.getLogger("stator.worker")

# Seconds for which a statement waits for a lock: longer than the commits of others usually take.
WAIT = 0.5

# The same after a timeout in a step of the model, so that retries cost the other models little.
PROBE = 0.1

# Seconds until a step is tried again, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0

# Seconds after the end of its pause from which a skipped step says nothing about the table any more.
STALE = 10.0


@dataclass(frozen=True, slots=True)
class _Vain:
    """How often a step timed out waiting for a lock, and the monotonic time until which it is skipped."""

    times: int
    until: float


class Locks:
    """The steps of a worker, such as its claims, that timed out waiting for a lock on a table of one model.

    ``wait``: seconds that a statement waits for a lock; None for as long as the session allows. Used by several
    threads.
    """

    def __init__(self, label: str, wait: float | None = None) -> None:
        self._label = label
        self._wait = wait
        self._vain: dict[str, _Vain] = {}
        self._guard = threading.Lock()

    @property
    def wait(self) -> float | None:
        """Seconds that the next statement may wait for a lock."""
        return self._wait if not self._vain or self._wait is None else min(self._wait, PROBE)

    def shortest(self, wait: float | None) -> float | None:
        """Return the seconds to wait for the next lock if the caller allows ``wait``; None for no limit."""
        return min((each for each in (self.wait, wait) if each is not None), default=None)

    @property
    def are_held(self) -> bool:
        """Whether a step has timed out and was not taken since."""
        return bool(self._vain)

    def allow(self, step: str) -> bool:
        """Return whether a step may be taken now."""
        vain = self._vain.get(step)
        return vain is None or time.monotonic() >= vain.until

    def pause(self, step: str) -> float:
        """Return the seconds until a step may be taken."""
        vain = self._vain.get(step)
        return max(0.0, vain.until - time.monotonic()) if vain else 0.0

    @contextmanager
    def tried(self, step: str) -> Iterator[None]:
        """Take a step; if it times out waiting for a lock, skip it for a while and raise the error."""
        try:
            yield
        except Exception as error:
            if is_lock_timeout(error):
                self._note(step)
            raise
        if self._vain:
            self._forget(step)

    def doubt(self, step: str) -> None:
        """Make a step wait only briefly for locks: it has timed out together with those of other models."""
        with self._guard:
            self._vain.setdefault(step, _Vain(0, 0.0))

    def _note(self, step: str) -> None:
        now = time.monotonic()
        with self._guard:
            self._vain = {each: vain for each, vain in self._vain.items() if vain.until + STALE > now or not vain.times}
            told = any(vain.times for vain in self._vain.values())
            times = self._vain.get(step, _Vain(0, 0.0)).times + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(times - 1, 10)) * random.uniform(0.5, 1.0)
            self._vain[step] = _Vain(times, now + pause)
        if not told:
            logger.warning("stator.lock_timeout", extra={"model": self._label, "step": step})

    def _forget(self, step: str) -> None:
        with self._guard:
            if self._vain.pop(step, _Vain(0, 0.0)).times and not any(vain.times for vain in self._vain.values()):
                logger.info("stator.lock_gone", extra={"model": self._label})


class Limited(Protocol):
    """Operations whose statements may wait for locks."""

    label: str
    alias: str
    locks: Locks

    @property
    def capabilities(self) -> Capabilities:
        """What the database can do."""

    @property
    def longest_wait(self) -> float:
        """Seconds for which a worker's statement may wait for a lock of others."""


Member = TypeVar("Member", bound=Limited)


def limit_waits(group: Iterable[Limited]) -> None:
    """Limit how long the statements of a worker's operations wait for locks."""
    shared: dict[tuple[str, str], Locks] = {}
    for operations in group:
        label = operations.label if operations.capabilities.locks_tables else f"database {operations.alias!r}"
        locks = Locks(label, operations.longest_wait)
        operations.locks = shared.setdefault((operations.alias, label), locks)


def together(group: list[Member], step: str, act: Callable[..., object]) -> None:
    """Take a step for several models at once: ``act(*group)``. Models that others have locked are skipped for a while.

    After a timeout it is not known which model is locked, so each is done by itself.
    """
    held = [operations for operations in group if operations.locks.are_held]
    parts = [[operations for operations in group if operations not in held], *([each] for each in held)]
    for part in filter(None, parts):
        try:
            if len(part) > 1:
                act(*part)
            elif part[0].locks.allow(step):
                with part[0].locks.tried(step):
                    act(*part)
        except Exception as error:
            if not is_lock_timeout(error):
                raise
            if len(part) > 1:
                for operations in part:
                    operations.locks.doubt(step)
                    parts.append([operations])
