"""Durations as text, short enough for a table."""

from collections.abc import Iterable
from datetime import timedelta

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def seconds_of(length: timedelta | int | None) -> float:
    """Return the seconds of a duration; databases without such a type give microseconds.

    0 for none, and for a negative one, which means that a clock was set back.
    """
    if length is None:
        return 0.0
    return max(0.0, length.total_seconds() if isinstance(length, timedelta) else length / 1_000_000)


def longest(lengths: Iterable[float | None]) -> float | None:
    """Return the longest of some durations; None if none is known."""
    return max((each for each in lengths if each is not None), default=None)


def span(seconds: float) -> str:
    """Return the two largest units of a duration, for instance ``3 d 4 h``; a negative one counts as 0."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"
