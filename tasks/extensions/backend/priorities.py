"""Conversion between our priorities and the priorities of Django's Tasks framework. Works without the framework."""

import time
from datetime import datetime

from tasks.conf import DJANGO

# Django's priorities go from -100 to 100, and larger is sooner. Ours are moments in milliseconds, and smaller is
# sooner. One step of Django's equals more milliseconds than there are until the year 2286, so the step decides before
# the moment.
STEP = 10**13


def priority_of(priority: int, run_after: datetime | None = None) -> int:
    """Return our priority for one of Django's; if two are equal, the earlier ``run_after`` (default: now) is first."""
    moment = time.time_ns() // 1_000_000 if run_after is None else int(run_after.timestamp() * 1000)
    # Clamped: a later moment would reach into the next lower priority.
    return min(max(moment, 0), STEP - 1) - priority * STEP


def django_priority(priority: int) -> int:
    """Return Django's priority for one of ours."""
    return max(-100, min(100, -(priority // STEP)))


def shown_priority(action: str, priority: int) -> int:
    """Return the priority as the publisher knows it: Django's, if the action belongs to Django's framework."""
    return django_priority(priority) if action.startswith(DJANGO) else priority
