"""What the admin says about one row in a few words, from the row alone."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from stator.columns import parked_from
from stator.conf import read_settings
from stator.durations import span
from stator.workers import worker_of

NONE = "\N{EM DASH}"


def standing(row: Any) -> str:
    """What kind of state the row is in, in one word; what an operator has to know first wins."""
    state = row.state_graph.states.get(row.state)
    if state is None:
        return "unknown"
    if state.terminal:
        return "terminal"
    if row.state_claim is not None:
        return "leased"
    if state.automatic and is_quarantined(row):
        return "quarantined"
    if state.automatic and row.state_failures:
        return "failing"
    return "automatic" if state.automatic else "external"


def age(row: Any) -> str:
    """How long the row has been in its state."""
    return span(seconds_since(row.state_changed))


def expected_within(row: Any) -> str:
    """How long rows of its state are expected to stay, where this one stays longer; else empty."""
    state = row.state_graph.states.get(row.state)
    most = state.expect_within if state is not None else None
    return span(most) if most and seconds_since(row.state_changed) > most else ""


def holder(token: UUID) -> str:
    """The worker that a claim names."""
    return f"worker {worker_of(token)}"


def lease(row: Any) -> str:
    """Who holds the row, and for how much longer."""
    if row.state_claim is None:
        return NONE
    left = -seconds_since(row.state_locked_until) if row.state_locked_until else 0.0
    until = f"{span(left)} left" if left > 0 else f"ran out {span(-left)} ago"
    return f"{holder(row.state_claim)}, {until}"


def next_attempt(row: Any) -> str:
    """When the row will be attempted, or why it will not."""
    state = row.state_graph.states.get(row.state)
    if state is None:
        return "never: unknown state"
    if not state.automatic:
        return NONE
    if row.state_claim is not None:
        return "running"
    if is_quarantined(row):
        return "never: quarantined"
    if not row.state_ready and row.state_next_attempt and row.state_next_attempt >= parked_from():
        return "waits for another object"
    left = -seconds_since(row.state_next_attempt) if row.state_next_attempt else 0.0
    return "now" if left <= 0 else f"in {span(left)}"


def is_quarantined(row: Any) -> bool:
    """Whether the row lost so many leases that workers leave it alone."""
    # Nearly every row lost none: settings are not read a hundred times for a list.
    return bool(row.state_crashes and row.state_crashes >= read_settings()[0].MAX_CRASHES)


def seconds_since(moment: datetime) -> float:
    """By the clock of this machine, for people."""
    # Naive moments where the project has no zones; ours is then naive as well.
    return (timezone.now() - moment).total_seconds()
