"""Priorities of Django's Tasks framework, converted to ours and back. Needs no framework to be installed."""

import time
from datetime import datetime

from tasks.registry import DJANGO

# Django's priorities go from -100 to 100, larger is sooner; ours are moments in milliseconds, smaller is sooner. One
# step of Django's is more milliseconds than there will be until the year 2286, so that it decides before the moment.
STEP = 10**13


def priority_of(priority: int, run_after: datetime | None = None) -> int:
    """Our priority for one of Django's; of equal ones the earlier ``run_after`` comes first, by default now."""
    moment = time.time_ns() // 1_000_000 if run_after is None else int(run_after.timestamp() * 1000)
    # A later moment would count as a lower priority.
    return min(max(moment, 0), STEP - 1) - priority * STEP


def django_priority(priority: int) -> int:
    """Django's priority for one of ours."""
    return max(-100, min(100, -(priority // STEP)))


def shown_priority(action: str, priority: int) -> int:
    """The priority of a task of this action as its publisher knows it: Django's for one of Django's framework."""
    return django_priority(priority) if action.startswith(DJANGO) else priority
