"""Why one object is not moving, in the words of people and in numbers for programs; the most decisive reason first."""

from dataclasses import asdict, dataclass, field
from typing import Any

from stator.durations import span
from stator.explain.facts import LINE, Facts, gather
from stator.pauses import Pause
from stator.workers import WORKER_ALIVE


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a ``code`` that does not change, a sentence, and the numbers in it; lengths of time are seconds."""

    code: str
    sentence: str
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """The reason as JSON has it."""
        return asdict(self)


def explain(model: Any, pk: Any, using: str | None = None) -> list[Reason]:
    """The reasons why an object is not moving, first things first; never empty, at most five statements."""
    facts = gather(model, pk, using)
    if facts is None:
        return [Reason("gone", f"{model._meta.label} {pk} is gone: there is no such row.")]
    return [reason for say in ORDER for reason in say(facts)]


def terminal(facts: Facts) -> list[Reason]:
    """It is where it belongs."""
    state = facts.state
    if state is None or not state.terminal:
        return []
    if not state.delete_after:
        return [Reason("terminal", f"{state} is a terminal state: the object stays here.")]
    left = state.delete_after - facts.since("state_changed")
    sentence = f"{state} is a terminal state: the object is deleted {_in(left)}."
    return [Reason("terminal", sentence, {"deleted_in": left})]


def unknown_state(facts: Facts) -> list[Reason]:
    """Workers pass over states that their code does not have."""
    if facts.state is not None:
        return []
    graph = facts.model.state_graph
    if heir := graph.renames.get(facts.name):
        sentence = f"{facts.name!r} is the former name of {heir}: workers move the object at their next scheduling pass."
        return [Reason("unknown_state", sentence, {"within": facts.settings.SCHEDULE_INTERVAL})]
    sentence = (
        f"{graph.__name__} does not know the state {facts.name!r}, so workers leave the object alone; "
        f"declare renamed_from={facts.name!r} on the state that took its place, or move the object by hand."
    )
    return [Reason("unknown_state", sentence)]


def leased(facts: Facts) -> list[Reason]:
    """A worker attempts it, or did until it died."""
    if not facts.claimed:
        return []
    left = -facts.since("state_locked_until") if facts.row["state_locked_until"] else None
    who, numbers = _holder(facts)
    if left is not None and left <= 0:
        within = facts.settings.REAP_INTERVAL
        sentence = f"The lease of {who} ran out {span(-left)} ago; the object is reclaimed within {span(within)}."
        return [Reason("lease_lost", sentence, numbers | {"expired": -left, "within": within})]
    until = "" if left is None else f", until {span(left)} from now unless renewed"
    since = f" since {span(numbers['since'])} ago" if "since" in numbers else ""
    return [Reason("leased", f"Leased by {who}{since}{until}.", numbers | {"until": left})]


def quarantined(facts: Facts) -> list[Reason]:
    """It ended its workers too often."""
    if not facts.quarantined or facts.claimed:
        return []
    crashes = facts.row["state_crashes"]
    said = f" It last said: {_words(facts)}." if facts.report else ""
    sentence = f"Quarantined after {crashes} lost leases in a row; retry it once the cause is mended.{said}"
    return [Reason("quarantined", sentence, {"crashes": crashes, **_report(facts)})]


def paused(facts: Facts) -> list[Reason]:
    """Somebody told workers to leave it alone."""
    return [_pause(facts, pause) for pause in facts.pauses]


def external(facts: Facts) -> list[Reason]:
    """Something else moves it."""
    state = facts.state
    if state is None or state.terminal or state.automatic:
        return []
    moved_by = " or workers move it once a condition holds" if state.conditions else ""
    sentence, numbers = f"Workers do not attempt {state}: something else moves the object on{moved_by}", {}
    if state.timeout_state and state.timeout_value:
        left = state.timeout_value - facts.since("state_changed")
        coming = f"times out to {state.timeout_state} {_in(left)}" if left > 0 else f"timed out {span(-left)} ago"
        sentence, numbers = f"{sentence}; it {coming}", {"times_out_in": left}
    return [Reason("external", f"{sentence}.", numbers)]


def backoff(facts: Facts) -> list[Reason]:
    """It failed, and waits for the next attempt."""
    failures = facts.row["state_failures"]
    if not _rests(facts) or not failures:
        return []
    left = -facts.since("state_next_attempt")
    said = f", the last one {_words(facts)}" if facts.report and facts.report.error else ""
    sentence = f"Backing off after {_count(failures, 'error')}{said}; next attempt {_in(left)}."
    return [Reason("backoff", sentence, {"failures": failures, "next_attempt_in": left, **_report(facts)})]


def last_said(facts: Facts) -> list[Reason]:
    """Its handler gave a reason to wait."""
    report = facts.report
    if not _rests(facts) or facts.row["state_failures"] or report is None:
        return []
    if report.error or report.state != facts.name:
        return []
    times = f" ({report.times} times)" if report.times > 1 else ""
    return [Reason("last_said", f'Its handler last said "{report.message}"{times}.', _report(facts))]


def not_due(facts: Facts) -> list[Reason]:
    """Its time has not come."""
    if not _rests(facts) or facts.row["state_failures"]:
        return []
    left = -facts.since("state_next_attempt")
    return [Reason("not_due", f"Not due yet: the next attempt is {_in(left)}.", {"next_attempt_in": left})]


def no_worker(facts: Facts) -> list[Reason]:
    """Nobody is there to do it."""
    state = facts.state
    moved_by_workers = state is None or state.automatic or state.timeout_state or state.conditions
    if facts.workers or facts.claimed or facts.quarantined or not moved_by_workers:
        return []
    sentence = (
        f"No live worker serves {facts.label}: none was heard of in the last {span(WORKER_ALIVE)}; start runstator."
    )
    return [Reason("no_worker", sentence, {"workers": 0})]


def crashed(facts: Facts) -> list[Reason]:
    """It may be what ended its worker."""
    crashes = facts.row["state_crashes"]
    if not (facts.in_turn and facts.ready and crashes):
        return []
    sentence = f"It lost {_count(crashes, 'lease')} in a row, so it is run alone, once a worker runs nothing else."
    return [Reason("crashed", sentence, {"crashes": crashes})]


def at_limit(facts: Facts) -> list[Reason]:
    """As many as may run in its state do."""
    most = facts.state.concurrency if facts.state else None
    if not most or not (facts.in_turn and facts.ready) or facts.running < most:
        return []
    sentence = f"{facts.name} is at its limit: {facts.running} of {most} are claimed."
    return [Reason("at_limit", sentence, {"claimed": facts.running, "limit": most})]


def in_line(facts: Facts) -> list[Reason]:
    """Others are first."""
    if not facts.in_turn:
        return []
    if not facts.ready:
        within = facts.settings.POLL_INTERVAL
        return [Reason("due", f"Due; workers mark it ready within {span(within)} or so.", {"within": within})]
    if facts.ahead > LINE:
        return [Reason("in_line", f"Ready, with more than {LINE:,} objects before it.", {"more_than": LINE})]
    before = f"with {_count(facts.ahead, 'object')} before it" if facts.ahead else "and next in line"
    return [Reason("in_line", f"Ready, {before}.", {"ahead": facts.ahead})]


ORDER = (
    terminal,
    unknown_state,
    leased,
    quarantined,
    paused,
    external,
    backoff,
    last_said,
    not_due,
    no_worker,
    crashed,
    at_limit,
    in_line,
)


def _rests(facts: Facts) -> bool:
    """Whether it waits for its time, and for nothing else."""
    return facts.automatic and facts.waiting and not (facts.claimed or facts.quarantined)


def _holder(facts: Facts) -> tuple[str, dict[str, Any]]:
    """The worker that holds the object, in words and numbers."""
    from_token = f"{facts.row['state_claim'].int >> 80:012x}"
    numbers: dict[str, Any] = {"worker": from_token}
    if facts.row["state_attempted"]:
        numbers["since"] = facts.since("state_attempted")
    worker = facts.holder
    if worker is None:
        return f"worker {from_token}, of which nothing is known", numbers
    heard = (facts.now - worker.heartbeat).total_seconds()
    numbers |= {"host": worker.host, "pid": worker.pid, "heartbeat": heard}
    end = "stopped" if worker.stopped else f"heartbeat {span(heard)} ago"
    return f"worker {worker.pk} (process {worker.pid} on {worker.host}, {end})", numbers


def _pause(facts: Facts, pause: Pause) -> Reason:
    left = (pause.until - facts.now).total_seconds() if pause.until else None
    what = pause.state or "the model"
    where = f" where {', '.join(f'{name}={value!r}' for name, value in pause.where.items())}" if pause.where else ""
    by = f" by {pause.actor}" if pause.actor else ""
    until = "until it is resumed" if left is None else f"for another {span(left)}"
    why = f": {pause.reason}" if pause.reason else ""
    numbers = {"pause": pause.pk, "actor": pause.actor, "reason": pause.reason, "until": left}
    return Reason("paused", f"Paused{by}: {what}{where}, {until}{why}.", numbers)


def _words(facts: Facts) -> str:
    report = facts.report
    return f"{report.error}: {report.message}" if report else ""


def _report(facts: Facts) -> dict[str, Any]:
    report = facts.report
    if report is None:
        return {}
    ago = (facts.now - report.at).total_seconds()
    return {"error": report.error, "message": report.message, "times": report.times, "said": ago}


def _in(left: float) -> str:
    return f"in {span(left)}" if left > 0 else "now"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
