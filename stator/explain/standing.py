"""Reasons that do not depend on time: the object rests, somebody holds it, or a person paused it."""

from typing import Any

from stator.explain.facts import Facts
from stator.explain.reason import Reason, coming, report_of, words_of
from stator.graph.durations import span
from stator.rows.pauses import Pause
from stator.rows.workers import worker_of


def terminal(facts: Facts) -> list[Reason]:
    """Return the reason for an object in a terminal state."""
    state = facts.state
    if state is None or not state.terminal:
        return []
    if not state.delete_after:
        return [Reason("terminal", f"{state} is a terminal state: the object stays here.")]
    left = state.delete_after - facts.since("state_changed")
    sentence = f"{state} is a terminal state: the object is deleted {coming(left)}."
    return [Reason("terminal", sentence, {"deleted_in": left})]


def unknown_state(facts: Facts) -> list[Reason]:
    """Return the reason for an object in a state that this code does not know; workers skip it."""
    if facts.state is not None:
        return []
    graph = facts.model.state_graph
    if heir := graph.renames.get(facts.name):
        sentence = f"{facts.name!r} is the former name of {heir}; workers move the object at their next pass."
        return [Reason("unknown_state", sentence, {"within": facts.settings.SCHEDULE_INTERVAL})]
    sentence = (
        f"{graph.__name__} does not know the state {facts.name!r}, so workers leave the object alone; "
        f"declare renamed_from={facts.name!r} on the state that took its place, or move the object by hand."
    )
    return [Reason("unknown_state", sentence)]


def leased(facts: Facts) -> list[Reason]:
    """Return the reason for an object that a worker holds, or held until its lease ran out."""
    if not facts.claimed:
        return []
    left = -facts.since("state_locked_until") if facts.row["state_locked_until"] else None
    who, numbers = _holder(facts)
    if left is not None and left <= 0:
        within = facts.settings.REAP_INTERVAL
        then = f"is reclaimed within {span(within)}" if facts.workers else "is reclaimed once a worker is started"
        sentence = f"The lease of {who} ran out {span(-left)} ago; the object {then}."
        return [Reason("lease_lost", sentence, numbers | {"expired": -left, "within": within})]
    until = "" if left is None else f", until {span(left)} from now unless renewed"
    since = f" since {span(numbers['since'])} ago" if "since" in numbers else ""
    return [Reason("leased", f"Leased by {who}{since}{until}.", numbers | {"until": left})]


def _holder(facts: Facts) -> tuple[str, dict[str, Any]]:
    """Return a phrase for the worker that holds the object, and its numbers."""
    from_token = worker_of(facts.row["state_claim"])
    numbers: dict[str, Any] = {"worker": from_token}
    if facts.row["state_attempted"]:
        numbers["since"] = facts.since("state_attempted")
    worker = facts.holder
    if worker is None:
        return f"worker {from_token} (nothing else is known of it)", numbers
    heard = (facts.now - worker.heartbeat).total_seconds()
    numbers |= {"host": worker.host, "pid": worker.pid, "heartbeat": heard}
    end = "stopped" if worker.stopped else f"heartbeat {span(heard)} ago"
    return f"worker {worker.pk} (process {worker.pid} on {worker.host}, {end})", numbers


def quarantined(facts: Facts) -> list[Reason]:
    """Return the reason for an object whose workers lost too many leases."""
    if not facts.quarantined or facts.claimed:
        return []
    crashes = facts.row["state_crashes"]
    said = f" It last said: {words_of(facts)}." if facts.report else ""
    sentence = f"Quarantined after {crashes} lost leases in a row; retry it once the cause is mended.{said}"
    return [Reason("quarantined", sentence, {"crashes": crashes, **report_of(facts)})]


def paused(facts: Facts) -> list[Reason]:
    """Return a reason for each pause that holds the object."""
    return [_pause(facts, pause) for pause in facts.pauses]


def _pause(facts: Facts, pause: Pause) -> Reason:
    left = (pause.until - facts.now).total_seconds() if pause.until else None
    what = pause.state or "the model"
    where = f" where {', '.join(f'{name}={value!r}' for name, value in pause.where.items())}" if pause.where else ""
    by = f" by {pause.actor}" if pause.actor else ""
    until = "until it is resumed" if left is None else f"for another {span(left)}"
    why = f": {pause.reason}" if pause.reason else ""
    numbers = {"pause": pause.pk, "actor": pause.actor, "reason": pause.reason, "until": left}
    return Reason("paused", f"Paused{by}: {what}{where}, {until}{why}.", numbers)


def external(facts: Facts) -> list[Reason]:
    """Return the reason for an object that something else moves."""
    state = facts.state
    if state is None or state.terminal or state.automatic:
        return []
    moved_by = " or workers move it once a condition holds" if state.conditions else ""
    sentence, numbers = f"Workers do not attempt {state}: something else moves the object on{moved_by}", {}
    if state.timeout_state and state.timeout_value:
        left = state.timeout_value - facts.since("state_changed")
        timeout = f"times out to {state.timeout_state} {coming(left)}" if left > 0 else f"timed out {span(-left)} ago"
        sentence, numbers = f"{sentence}; it {timeout}", {"times_out_in": left}
    return [Reason("external", f"{sentence}.", numbers)]
