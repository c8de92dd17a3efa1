"""Short texts of the admin about one row, from the row alone."""

from datetime import datetime
from uuid import UUID

from django.utils import timezone

from stator.conf import read_settings
from stator.explain.sentences import counted
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.columns import parked_from
from stator.rows.workers import worker_of

NONE = "\N{EM DASH}"


def standing(row: StatorModel) -> str:
    """Return the kind of the row's situation in one word; the most important one for an operator wins."""
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


def age(row: StatorModel) -> str:
    """Return how long the row has been in its state."""
    return span(seconds_since(row.state_changed))


def expected_within(row: StatorModel) -> str:
    """Return the state's ``expect_within`` if the row has stayed longer; else ""."""
    state = row.state_graph.states.get(row.state)
    most = state.expect_within if state is not None else None
    return span(most) if most and seconds_since(row.state_changed) > most else ""


def holder(token: UUID) -> str:
    """Return a phrase for the worker of a claim."""
    return f"worker {worker_of(token)}"


def lease(row: StatorModel) -> str:
    """Return who holds the row, and for how much longer."""
    if row.state_claim is None:
        return NONE
    left = -seconds_since(row.state_locked_until) if row.state_locked_until else 0.0
    until = f"{span(left)} left" if left > 0 else f"ran out {span(-left)} ago"
    return f"{holder(row.state_claim)}, {until}"


def why(row: StatorModel) -> str:
    """Return in a few words why the row does not move, from the row alone; its page has all reasons."""
    match standing(row):
        case "unknown":
            return "unknown state"
        case "terminal":
            return "ended"
        case "leased":
            late = row.state_locked_until is not None and seconds_since(row.state_locked_until) > 0
            return "lease ran out" if late else "running"
        case "external":
            return "moved from outside"
        case "quarantined":
            return f"quarantined: lost {row.state_crashes} leases"
    return _why_waiting(row)


def _why_waiting(row: StatorModel) -> str:
    due, failures = row.state_next_attempt, row.state_failures
    if not row.state_ready and due and due >= parked_from():
        return "waits for another object"
    errors = counted(failures, "error")
    if due and seconds_since(due) < 0:
        return f"backing off: {errors}" if failures else "not due yet"
    ready = "ready" if row.state_ready else "due"
    return f"{ready}, after {errors}" if failures else ready


def next_attempt(row: StatorModel) -> str:
    """Return when the row will be attempted, or why it will not."""
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


def is_quarantined(row: StatorModel) -> bool:
    """Return whether the row lost too many leases, so that workers leave it alone."""
    # Nearly every row lost none, so a list need not read the settings a hundred times.
    return bool(row.state_crashes and row.state_crashes >= read_settings()[0].MAX_CRASHES)


def seconds_since(moment: datetime) -> float:
    """Return the seconds since a time by the clock of this machine, for people."""
    # Without time zones both times are naive.
    return (timezone.now() - moment).total_seconds()
