"""Short texts of the admin about one row, from the row alone."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models.functions import Left
from django.utils import timezone

from stator.conf import read_settings
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.dates import deadline_of, moment_of, start_of
from stator.rows.due_times import parked_from
from stator.rows.meta import home_of, owner_of
from stator.rows.news import HowFar, how_far
from stator.rows.readings import read
from stator.rows.state_column import UNMANAGED, state_name, state_of
from stator.rows.workers import worker_of
from stator.survey.estimates import passes, times_out
from stator.texts import counted

NONE = "\N{EM DASH}"


def age(row: StatorModel) -> str:
    """Return how long the row has been in its state."""
    return span(seconds_since(row.state_changed))


def timeout(row: StatorModel) -> str:
    """Return when the row times out; "" if it does not."""
    if deadline := deadline_of(owner_of(type(row)), state_of(row)):
        return passes(deadline, moment_of(row, deadline), timezone.now())
    return times_out(state_of(row), seconds_since(row.state_changed), timezone.now())[0]


def expected_within(row: StatorModel) -> str:
    """Return the state's ``expect_within`` if the row has stayed longer; else ""."""
    state = state_of(row)
    most = state.expect_within if state is not None else None
    return span(most) if most and seconds_since(row.state_changed) > most else ""


def holder(token: UUID) -> str:
    """Return a phrase for the worker of a claim."""
    return f"worker {worker_of(token)}"


def lease(row: StatorModel, who: str = "") -> str:
    """Return who holds the row, by default the worker that the claim names, and for how much longer."""
    if row.state_claim is None:
        return NONE
    left = -seconds_since(row.state_locked_until) if row.state_locked_until else 0.0
    until = f"{span(left)} left" if left > 0 else f"lease ran out {span(-left)} ago"
    return f"{who or holder(row.state_claim)}, {until}"


def progress(rows: Iterable[StatorModel]) -> dict[object, HowFar]:
    """Return by key how far the attempts on these rows of one model are; one statement, none if nothing is claimed."""
    claimed = {str(row.pk): row for row in rows if row.state_claim is not None}
    if not claimed:
        return {}
    first = next(iter(claimed.values()))
    label = owner_of(type(first))._meta.label_lower
    claims = {(label, text): row.state_claim for text, row in claimed.items() if row.state_claim}
    reached = how_far(first._state.db or home_of(first), claims)
    return {claimed[text].pk: progress for (_, text), progress in reached.items()}


class LatestError(NamedTuple):
    """The latest error of a row as one line, and the fingerprint that all errors of its type and place have."""

    line: str
    fingerprint: str


# The most characters of an error in a list.
LINE = 160


def latest_errors(rows: Iterable[StatorModel]) -> dict[object, LatestError]:
    """Return the latest errors of these rows of one model by key; one statement, none without rows."""
    by_text = {str(row.pk): row for row in rows}
    if not by_text:
        return {}
    first = next(iter(by_text.values()))
    label, using = owner_of(type(first))._meta.label_lower, first._state.db or home_of(first)
    columns = ("object_pk", "error", Left("message", LINE), "fingerprint")
    return {
        by_text[text].pk: LatestError(" ".join(f"{error}: {message}".split())[:LINE], fingerprint)
        for text, error, message, fingerprint in read("reported", using, label, by_text, columns, otherwise=())
    }


class Situation(NamedTuple):
    """A row's situation: its kind in one word, why the row does not move in a few, and when it will be attempted."""

    kind: str
    why: str
    next: str


def situation(row: StatorModel) -> Situation:
    """Return the most important situation for an operator, from the row alone; its page has all reasons."""
    state = state_of(row)
    if state is None and state_name(row) == UNMANAGED:
        return Situation("unmanaged", "has no state", NONE)
    if state is None:
        return Situation("unknown", "unknown state", "never: unknown state")
    if state.terminal:
        return Situation("terminal", "ended", NONE)
    if row.state_claim is not None:
        late = row.state_locked_until is not None and seconds_since(row.state_locked_until) > 0
        return Situation("leased", "lease ran out" if late else "running", "running" if state.automatic else NONE)
    if not state.automatic:
        return Situation("external", "moved from outside", NONE)
    if is_quarantined(row):
        return Situation("quarantined", f"quarantined: lost {row.state_crashes} leases", "never: quarantined")
    return Situation("failing" if row.state_failures else "automatic", *_waiting(row))


def _waiting(row: StatorModel) -> tuple[str, str]:
    due, failures = row.state_next_attempt, row.state_failures
    if not row.state_ready and due and due >= parked_from():
        return "waits for another object", "waits for another object"
    if (start := start_of(owner_of(type(row)), state_of(row))) and (moment := moment_of(row, start)):
        due = max(moment, due or moment)
    errors, left = counted(failures, "error"), -seconds_since(due) if due else 0.0
    if left > 0:
        return f"backing off: {errors}" if failures else "not due yet", f"in {span(left)}"
    ready = "ready" if row.state_ready else "due"
    return f"{ready}, after {errors}" if failures else ready, "now"


def is_failing(row: StatorModel) -> bool:
    """Return whether the latest attempt ended in an error, or lost its lease too often."""
    return bool(row.state_failures) or is_quarantined(row)


def is_quarantined(row: StatorModel) -> bool:
    """Return whether the row lost too many leases, so that workers leave it alone."""
    # Nearly every row lost none, so a list need not read the settings a hundred times.
    return bool(row.state_crashes and row.state_crashes >= read_settings()[0].MAX_CRASHES)


def seconds_since(moment: datetime) -> float:
    """Return the seconds since a time by the clock of this machine, for people."""
    # Without time zones both times are naive.
    return (timezone.now() - moment).total_seconds()
