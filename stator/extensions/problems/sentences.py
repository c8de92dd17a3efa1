"""Texts of the reasons: each function yields sentences about one object, with the numbers in them."""

from collections import Counter
from collections.abc import Iterator

from stator.extensions.problems.facts import LINE, Facts
from stator.graph.durations import span
from stator.rows.meta import graph_of
from stator.rows.problem import Numbers
from stator.rows.state_column import state_field
from stator.rows.workers import WORKER_ALIVE, worker_of
from stator.survey.estimates import coming, pace_text, passes, times_out
from stator.texts import counted, listed

# Seconds after which an object that is due and not marked ready is not about to be.
LATE = 60.0

# A sentence, and its numbers for programs; durations are in seconds.
Said = tuple[str, Numbers]


def terminal(facts: Facts) -> Iterator[Said]:
    """Say whether the object stays or is deleted."""
    if facts.state and facts.state.delete_after:
        left = facts.state.delete_after - facts.since("state_changed")
        yield (
            f"{facts.name} is a terminal state: the object is deleted {coming(left, facts.now)}.",
            {"deleted_in": left},
        )
    else:
        yield f"{facts.name} is a terminal state: the object stays here.", {}


def unmanaged(facts: Facts) -> Iterator[Said]:
    """Say that the object has no state."""
    column = state_field(facts.model).name
    yield f"The object is unmanaged: its {column} is null, so workers leave it alone until it gets a state.", {}


def other_version(facts: Facts) -> Iterator[Said]:
    """Say which live workers know the state: they run another version of the code."""
    knows = "know" if len(facts.knowing) > 1 else "knows"
    who = f"worker{'s' if len(facts.knowing) > 1 else ''} {listed(facts.knowing)} {knows} it"
    yield (
        f"State {facts.name!r} is not in the graph of this process; {who}, so the object waits for "
        f"{'one of them' if len(facts.knowing) > 1 else 'it'}.",
        {"state": facts.name, "workers": facts.knowing},
    )


def unknown_state(facts: Facts) -> Iterator[Said]:
    """Say whether the state was renamed, or how to do that."""
    graph = graph_of(facts.model)
    if heir := graph.renames.get(facts.name):
        when = "workers move the object at their next pass" if facts.workers else "a worker that is started moves it"
        sentence = f"{facts.name!r} is the former name of {heir}; {when}."
        yield sentence, {"within": facts.settings.SCHEDULE_INTERVAL}
        return
    sentence = (
        f"{graph.__name__} does not know the state {facts.name!r}, so workers do not attempt the object; "
        f"declare renamed_from={facts.name!r} on the state that replaced it, or move the object by hand."
    )
    yield sentence, {}


def lease_lost(facts: Facts) -> Iterator[Said]:
    """Say whose lease ran out, and when the object is reclaimed."""
    who, numbers = _holder(facts)
    expired, within = facts.since("state_locked_until"), facts.settings.REAP_INTERVAL
    then = f"is reclaimed within {span(within)}" if facts.workers else "is reclaimed once a worker is started"
    sentence = f"The lease of {who} ran out {span(expired)} ago; the object {then}."
    yield sentence, numbers | {"expired": expired, "within": within}


def leased(facts: Facts) -> Iterator[Said]:
    """Say who holds the object, since when and until when."""
    who, numbers = _holder(facts)
    left = -facts.since("state_locked_until") if facts.row["state_locked_until"] else None
    until = "" if left is None else f", until {span(left)} from now unless renewed"
    since = f" since {span(numbers['since'])} ago" if "since" in numbers else ""
    progress = facts.progress
    done = f" Done: {progress.described}." if progress else ""
    reached = {"progress": progress.as_dict()} if progress else {}
    yield f"Leased by {who}{since}{until}.{done}", numbers | {"until": left} | reached


def _holder(facts: Facts) -> Said:
    """Return a phrase for the worker that holds the object, and its numbers."""
    from_token = worker_of(facts.row["state_claim"])
    numbers: dict[str, object] = {"worker": from_token}
    if facts.row["state_attempted"]:
        numbers["since"] = facts.since("state_attempted")
    worker = facts.holder
    if worker is None:
        return f"worker {from_token} (no other record of it)", numbers
    heard = (facts.now - worker.heartbeat).total_seconds()
    numbers |= {"host": worker.host, "pid": worker.pid, "heartbeat": heard}
    end = "stopped" if worker.stopped else f"heartbeat {span(heard)} ago"
    return f"worker {worker.pk} (process {worker.pid} on {worker.host}, {end})", numbers


def quarantined(facts: Facts) -> Iterator[Said]:
    """Say how many leases were lost, and the last report."""
    crashes = facts.row["state_crashes"]
    words, numbers = reported(facts)
    said = f" Latest report: {words}." if words else ""
    died = f": {_died(facts.endings)}" if facts.endings else ""
    if facts.retry:
        by, ago = facts.retry.actor, (facts.now - facts.retry.at).total_seconds()
        said += f" The retry{f' by {by}' if by else ''} {span(ago)} ago did not help: it died again."
        numbers["retried"] = ago
    sentence = f"Quarantined after {crashes} lost leases in a row{died}; retry it after the cause is fixed.{said}"
    yield sentence, {"crashes": crashes, "endings": dict(facts.endings), **numbers}


def _died(endings: Counter[str]) -> str:
    """Return how workers ended while they attempted an object, the most frequent first."""
    many = endings.total()
    each = [f"{words}{f' {number:,} times' if 1 < number < many else ''}" for words, number in endings.most_common()]
    who = "they attempted" if many > 1 else "it attempted"
    return f"{counted(many, 'worker')} died while {who} it ({', '.join(each)})"


def external(facts: Facts) -> Iterator[Said]:
    """Say what else moves the object: a condition, a timeout."""
    state = facts.state
    moved_by = " or workers move it once a condition holds" if state and state.conditions else ""
    timeout, numbers = timeout_of(facts)
    yield f"Workers do not attempt {facts.name}: something else moves the object on{moved_by}{timeout}.", numbers


def timeout_of(facts: Facts) -> Said:
    """Return the end of a sentence about the timeout of the object's state; empty if there is none."""
    if facts.deadline:
        return _deadline(facts)
    timeout, left = times_out(facts.state, facts.since("state_changed"), facts.now)
    return (f"; it {timeout}", {"times_out_in": left}) if timeout else ("", {})


def _deadline(facts: Facts) -> Said:
    """Return the end of a sentence about the date at which the object times out; empty if its state has none."""
    if not (deadline := facts.deadline):
        return "", {}
    moment = facts.row["stator_deadline"]
    left = None if moment is None else (moment - facts.now).total_seconds()
    return f"; it {passes(deadline, moment, facts.now)}", {"times_out_in": left, "times_out_by": deadline.source}


def backoff(facts: Facts) -> Iterator[Said]:
    """Say how often it failed, the last error, and when it is attempted next."""
    failures, left = facts.row["state_failures"], facts.until_due()
    words, numbers = reported(facts)
    said = f", the last one {words}" if facts.report and facts.report.error else ""
    by, of_dates = _dates(facts)
    sentence = f"Backing off after {counted(failures, 'error')}{said}; next attempt {coming(left, facts.now)}{by}."
    yield sentence, {"failures": failures, "next_attempt_in": left, **numbers, **of_dates}


def not_due(facts: Facts) -> Iterator[Said]:
    """Say when the object is due."""
    left = facts.until_due()
    by, of_dates = _dates(facts)
    yield f"Not due yet: the next attempt is {coming(left, facts.now)}{by}.", {"next_attempt_in": left, **of_dates}


def _dates(facts: Facts) -> Said:
    """Return the end of a sentence about the dates of the object: what decides when it is due, and its deadline."""
    deadline, numbers = _deadline(facts)
    if not (start := facts.start):
        return deadline, numbers
    return f", from {start.source}{deadline}", {"due_by": start.source, **numbers}


def no_worker(facts: Facts) -> Iterator[Said]:
    """Say for how long no worker was heard of."""
    silent = f"no heartbeat in the last {span(WORKER_ALIVE)}"
    yield f"No live worker serves {facts.model._meta.label}: {silent}; start runstator.", {"workers": 0}


def crashed(facts: Facts) -> Iterator[Said]:
    """Say how many leases were lost, and that it was released from quarantine."""
    lost = facts.row["state_crashes"]
    why, until = f"It lost {counted(lost, 'lease')} in a row", ""
    if facts.retry:
        ago = span((facts.now - facts.retry.at).total_seconds())
        why, until = f"It was retried {ago} ago after it had lost its workers", ", until an attempt ends"
    yield f"{why}, so it is attempted alone, in a process of its own{until}.", {"crashes": lost}


def in_line(facts: Facts) -> Iterator[Said]:
    """Say how many objects are attempted before it, and when it is its turn."""
    of, turns, numbers = "", "", {}
    for name, value in facts.fair_by.items():
        of, turns = f" of {name} {value}", f"; the values of {name} take turns"
        numbers = {"fair_by": name, "value": str(value)}
    turn, of_turn = turn_of(facts)
    deadline, of_deadline = _deadline(facts)
    turn, of_turn = f"{turn}{deadline}", {**of_turn, **of_deadline}
    if facts.ahead > LINE:
        ahead = {"more_than": LINE, **numbers, **of_turn}
        yield f"Ready, with more than {LINE:,} objects{of} before it{turn}{turns}.", ahead
        return
    before = f"with {counted(facts.ahead, 'object')}{of} before it" if facts.ahead else f"and next in line{of}"
    yield f"Ready, {before}{turn}{turns}.", {"ahead": facts.ahead, **numbers, **of_turn}


def turn_of(facts: Facts) -> Said:
    """Return when the objects before it and it are done, as the end of a sentence; empty if that is not known."""
    turn = facts.turn
    return (f"; at {pace_text(turn.pace)} it is done {turn.when}", turn.numbers) if turn else ("", {})


def due(facts: Facts) -> Iterator[Said]:
    """Say how soon the object is marked ready."""
    within = facts.settings.SCHEDULE_INTERVAL if facts.parked else facts.settings.POLL_INTERVAL
    if not facts.workers:
        yield "Due; it is marked ready once a worker is started.", {"within": within}
        return
    since = min(facts.since("state_changed"), -facts.until_due())
    if since > LATE:
        yield f"Due for {span(since)}, and no worker has marked it ready.", {"within": within, "since": since}
        return
    yield f"Due; workers mark it ready within {span(within)} or so.", {"within": within}


def reported(facts: Facts) -> Said:
    """Return the latest report as a phrase and as numbers; both are empty if there is none."""
    report = facts.report
    if report is None:
        return "", {}
    ago = (facts.now - report.at).total_seconds()
    numbers = {"error": report.error, "message": report.message, "times": report.times, "said": ago}
    return f"{report.error}: {report.message}", numbers
