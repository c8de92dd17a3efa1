"""Waiting times: jitter around an interval, and back-off after errors. No Django, no clock."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

# A hundred years: dates of databases do not reach much further.
MAX_SECONDS = 100 * 365 * 86400.0


def jittered(interval: float, fraction: float) -> float:
    """Return an interval varied at random by up to ``fraction`` of itself in either direction."""
    return interval * random.uniform(1 - fraction, 1 + fraction) if fraction else interval


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with jitter and a cap, in seconds.

    The n-th consecutive error waits ``min(cap, base * factor ** (n - 1))``, less a random part: with ``jitter=0.9``,
    10 to 100 % of it. ``jitter=0`` waits exactly that. ``base=None`` takes the state's ``try_interval``. Full jitter
    after https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/; the minimum of 10 % keeps many
    failing rows from coming back at once.
    """

    base: float | None = None
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.9

    def delay(self, failures: int, interval: float) -> float:
        """Return the seconds to wait after the given number (1 or more) of consecutive errors."""
        base = interval if self.base is None else self.base
        # 2 ** 64 seconds exceed every cap; the limit keeps the power from overflowing.
        ceiling = min(max(self.cap, base), base * self.factor ** min(failures - 1, 64))
        return ceiling * (1 - self.jitter * random.random())


def delay_after(backoff: "Backoff | float | Callable[[int], float]", failures: int, interval: float) -> float:
    """Return the seconds to wait after an error, whatever form the state's back-off has."""
    if isinstance(backoff, Backoff):
        return backoff.delay(failures, interval)
    delay = float(backoff(failures) if callable(backoff) else backoff)
    if not math.isfinite(delay):
        raise ValueError(f"backoff gave {delay} after {failures} errors; it must give a number of seconds")
    return max(0.0, delay)
