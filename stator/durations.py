"""Lengths of time in words, short enough for a table."""

from datetime import timedelta

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def seconds_of(length: timedelta) -> float:
    """Its seconds; a negative one counts as nothing: a clock was set back meanwhile."""
    return max(0.0, length.total_seconds())


def span(seconds: float) -> str:
    """The two largest units of a length of time, for instance ``3 d 4 h``; a negative one counts as nothing."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"
