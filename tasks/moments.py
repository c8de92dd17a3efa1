"""Moments that every database keeps, and that every time zone has."""

from datetime import UTC, datetime
from typing import Any

# Some databases keep moments that Python cannot read again, and near the ends of its calendar some zones have none.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def moment_problem(moment: Any) -> str:
    """What is wrong with a moment, in one line; nothing of what is none."""
    try:
        kept = not isinstance(moment, datetime) or FIRST <= moment.astimezone(UTC) < LAST
    except (OverflowError, ValueError):
        kept = False
    return "" if kept else "must be a moment between the years 1970 and 9000"
