"""Reasons why an object that workers attempt is not attempted yet."""

from typing import Any

from stator.explain.facts import LINE, Awaited, Facts
from stator.explain.reason import Reason, coming, counted, report_of, words_of
from stator.graph.durations import span
from stator.rows.workers import WORKER_ALIVE


def waits_for(facts: Facts) -> list[Reason]:
    """Return a reason for each awaited object."""
    return [_wait(awaited) for awaited in facts.awaited]


def _wait(awaited: Awaited) -> Reason:
    *others, last = awaited.until
    until = f"{', '.join(others)} or {last}" if others else last
    sentence = f"Waits for {awaited.label} {awaited.pk}, which is in state {awaited.state}, until it is in {until}."
    numbers = {"model": awaited.label, "pk": str(awaited.pk), "state": awaited.state, "until": list(awaited.until)}
    return Reason("waits_for", sentence, numbers)


def backoff(facts: Facts) -> list[Reason]:
    """Return the reason for an object that failed and waits for its next attempt."""
    failures = facts.row["state_failures"]
    if not _rests(facts) or not failures:
        return []
    left = -facts.since("state_next_attempt")
    said = f", the last one {words_of(facts)}" if facts.report and facts.report.error else ""
    sentence = f"Backing off after {counted(failures, 'error')}{said}; next attempt {coming(left)}."
    return [Reason("backoff", sentence, {"failures": failures, "next_attempt_in": left, **report_of(facts)})]


def last_said(facts: Facts) -> list[Reason]:
    """Return the reason that the handler gave for waiting."""
    report = facts.report
    if not _rests(facts) or facts.row["state_failures"] or report is None:
        return []
    if report.error or report.state != facts.name:
        return []
    times = f" ({report.times} times)" if report.times > 1 else ""
    return [Reason("last_said", f'Its handler last said "{report.message}"{times}.', report_of(facts))]


def not_due(facts: Facts) -> list[Reason]:
    """Return the reason for an object that is not due yet."""
    if not _rests(facts) or facts.row["state_failures"]:
        return []
    left = -facts.since("state_next_attempt")
    return [Reason("not_due", f"Not due yet: the next attempt is {coming(left)}.", {"next_attempt_in": left})]


def no_worker(facts: Facts) -> list[Reason]:
    """Return the reason if no live worker serves the model."""
    state = facts.state
    moved_by_workers = state is None or state.automatic or state.timeout_state or state.conditions
    is_held = facts.claimed and not facts.lease_over
    if facts.workers or is_held or facts.quarantined or not moved_by_workers:
        return []
    sentence = (
        f"No live worker serves {facts.label}: none was heard of in the last {span(WORKER_ALIVE)}; start runstator."
    )
    return [Reason("no_worker", sentence, {"workers": 0})]


def crashed(facts: Facts) -> list[Reason]:
    """Return the reason for an object that lost several leases and is attempted alone."""
    crashes = facts.row["state_crashes"]
    if not (facts.in_turn and facts.ready and crashes >= facts.settings.alone_from):
        return []
    sentence = f"It lost {counted(crashes, 'lease')} in a row, so it is attempted alone, in a process of its own."
    return [Reason("crashed", sentence, {"crashes": crashes})]


def at_limit(facts: Facts) -> list[Reason]:
    """Return the reason if as many rows of its state are claimed as its limit allows."""
    most = facts.state.concurrency if facts.state else None
    if not most or not (facts.in_turn and facts.ready) or facts.running < most:
        return []
    sentence = f"{facts.name} is at its limit: {facts.running} of {most} are claimed."
    return [Reason("at_limit", sentence, {"claimed": facts.running, "limit": most})]


def in_line(facts: Facts) -> list[Reason]:
    """Return the reason for an object that is due, or ready behind others."""
    if not facts.in_turn:
        return []
    if not facts.ready:
        settings = facts.settings
        within = settings.SCHEDULE_INTERVAL if facts.parked else settings.POLL_INTERVAL
        return [Reason("due", f"Due; workers mark it ready within {span(within)} or so.", {"within": within})]
    of, turns, numbers = _share(facts)
    if facts.ahead > LINE:
        sentence = f"Ready, with more than {LINE:,} objects{of} before it{turns}."
        return [Reason("in_line", sentence, {"more_than": LINE, **numbers})]
    before = f"with {counted(facts.ahead, 'object')}{of} before it" if facts.ahead else f"and next in line{of}"
    return [Reason("in_line", f"Ready, {before}{turns}.", {"ahead": facts.ahead, **numbers})]


def _share(facts: Facts) -> tuple[str, str, dict[str, Any]]:
    """Return a phrase and numbers for the value of ``fair_by`` whose rows it competes with."""
    for name, value in facts.fair_by.items():
        return f" of {name} {value}", f"; the values of {name} take turns", {"fair_by": name, "value": str(value)}
    return "", "", {}


def _rests(facts: Facts) -> bool:
    """Return whether it only waits for its due time."""
    return facts.automatic and facts.waiting and not (facts.claimed or facts.quarantined)
