"""What a worker leaves alone for a while, and why: steps, rows, tables, claims in doubt, databases.

Each list of suspensions belongs to who asks it: a model, a loop, or one turn of a loop. How long something is left
alone, when that is over and what is forgotten is decided here alone.
"""

import random
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Suspension:
    """``key`` is left alone until the monotonic time ``until``, because of ``reason``: an error or a sentence.

    ``times``: how often in a row; 0 if it may be tried at once, with care.
    """

    key: Hashable
    reason: Exception | str
    until: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class ResumptionPace:
    """For how long something is left alone: ``first`` seconds, twice as long each time in a row, ``most`` at most.

    ``stale``: seconds after its end from when on it is forgotten. ``varies``: by up to half of it less, so that workers
    do not come back in step.
    """

    first: float
    most: float = inf
    stale: float = inf
    varies: bool = False

    def seconds(self, times: int) -> float:
        """Return for how long something is left alone that is suspended so often in a row."""
        seconds = min(self.most, self.first * 2 ** min(times - 1, 20))
        return seconds * random.uniform(0.5, 1.0) if self.varies else seconds


# Until somebody ends it.
OPEN_END = ResumptionPace(inf)


class Suspensions:
    """What is left alone, by key; several threads may use it.

    ``held``: also what may be tried again but was not yet. It is replaced, never changed; mostly it is empty, and that
    is all that is asked on the way of a row.
    """

    def __init__(self, pace: ResumptionPace = OPEN_END) -> None:
        self.held: dict[Hashable, Suspension] = {}
        self._pace = pace
        self._lock = threading.RLock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self.held

    def allow(self, key: Hashable) -> bool:
        """Return whether it is not left alone, or not any more."""
        suspension = self.held.get(key)
        return suspension is None or time.monotonic() >= suspension.until

    def remaining(self, key: Hashable) -> float:
        """Return the seconds until it may be tried."""
        suspension = self.held.get(key)
        return max(0.0, suspension.until - time.monotonic()) if suspension else 0.0

    def suspend(self, key: Hashable, reason: Exception | str, pace: ResumptionPace | None = None) -> Suspension:
        """Leave it alone for a while, by a pace that may differ from the usual one."""
        pace, now = pace or self._pace, time.monotonic()
        with self._lock:
            known = {each: old for each, old in self.held.items() if not old.times or now < old.until + pace.stale}
            last = known.pop(key, None)
            times = last.times + 1 if last else 1
            suspension = Suspension(key, reason, now + pace.seconds(times), times)
            self._keep(known | {key: suspension})
            return suspension

    def end(self, key: Hashable) -> Suspension | None:
        """Leave it alone no longer; return its suspension, if there was one."""
        if key not in self.held:
            return None
        with self._lock:
            others = self.held.copy()
            ended = others.pop(key, None)
            self._keep(others)
            return ended

    def _keep(self, held: dict[Hashable, Suspension]) -> None:
        self.held = held
