"""The history of one row in sentences, newest first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Q

from stator.admin.row_summary import holder, seconds_since
from stator.extensions.reports.models import History, Report
from stator.graph.durations import span
from stator.graph.failures import lease_lost
from stator.graph.options import EVENT_NAME
from stator.models import StatorModel
from stator.rows.meta import home_of
from stator.rows.process_exits import processes_of
from stator.rows.records import records_of
from stator.rows.state_column import state_name

LATEST = 50


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One entry: ``kind`` for its style, what happened, who or what did it, and the message."""

    kind: str
    at: datetime
    what: str
    who: str = ""
    said: str = ""
    details: str = ""
    traceback: str = ""
    log: str = ""

    @property
    def ago(self) -> str:
        """The time since the event as text."""
        return f"{span(seconds_since(self.at))} ago"

    @property
    def key(self) -> str:
        """An identifier that stays the same when the page is drawn again."""
        return f"{self.kind}-{self.at.timestamp():.6f}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a row, and the moves among them as ``(from, to)``, the latest first."""

    events: list[TimelineEvent]
    moves: list[tuple[str, str]]


# Returns the latest entries of a row, at most so many, each with the id of the worker that made it.
Entries = Callable[[StatorModel, int], Iterable[tuple[str, TimelineEvent]]]

# What extensions add.
_further: list[Entries] = []


def add_entries(entries: Entries) -> None:
    """Add entries of an extension, whose module for the admin calls this."""
    _further.append(entries)


def timeline_of(row: StatorModel) -> Timeline:
    """Return the stored events of the row; three statements, and those of extensions."""
    key = type(row), row.pk, home_of(row)
    report = records_of(Report, *key).first()
    kept = list(records_of(History, *key).order_by("-at", "-pk")[:LATEST])
    told_by_others = [each for entries in _further for each in entries(row, LATEST)]
    told = next((act for act in kept if report and report.error and act.fingerprint == report.fingerprint), None)
    ids = {act.worker for act in kept} | ({report.worker} if report else set())
    ids |= {worker for worker, _ in told_by_others}
    crew = _crew(ids - {""}, home_of(row))
    events = [_event(act, report if act is told else None, crew) for act in kept]
    events += [replace(event, who=crew[worker]) for worker, event in told_by_others]
    events += _beginnings(row, kept)
    if report is not None and told is None:
        events.append(_reported(report, crew))
    if row.state_claim is not None and row.state_attempted:
        what = f"Attempt {row.state_attempts} in {state_name(row)} began"
        events.append(TimelineEvent("begun", row.state_attempted, what, holder(row.state_claim)))
    events.sort(key=lambda event: event.at, reverse=True)
    return Timeline(events[:LATEST], [(act.source, act.to) for act in kept if act.to])


def _crew(ids: set[str], using: str | None) -> dict[str, str]:
    """Return a phrase for each worker; without a place for one whose row is deleted, a day after its end."""
    # One more key ensures that the page takes an equal number of statements with and without workers.
    found = processes_of(Q(pk__in=["", *ids]), using)
    return {pk: f"worker {pk} ({found[pk]})" if pk in found else f"worker {pk}" for pk in ids}


def _beginnings(row: StatorModel, kept: list[History]) -> list[TimelineEvent]:
    """Return where lives began after others of the same key: the count of moves begins anew there."""
    after = [(act.version, act.at) for act in kept]
    since = [(row.state_version, row.state_changed), *after]
    return [
        TimelineEvent("life", at, "A new object with this key, of which the entries below say nothing")
        for (version, at), (before, _) in zip(since, after, strict=False)
        if version < before
    ]


def _event(act: History, report: Report | None, crew: dict[str, str]) -> TimelineEvent:
    who = act.actor or crew.get(act.worker, "code")
    parts = (f"attempt {act.attempts}" if act.attempts else "", _took(act.duration), _repeated(report))
    details = ", ".join(filter(None, parts))
    said = act.reason or act.error
    traceback = report.traceback if report else ""
    log = act.log or (report.log if report else "") or ""
    if act.kind == History.Kind.ERROR:
        lost = act.fingerprint == lease_lost().fingerprint
        what = f"An attempt in {act.source} {'lost its lease' if lost else 'failed'}"
        return TimelineEvent("error", act.at, what, who, said, details, traceback, log)
    if act.kind == History.Kind.WAIT:
        return TimelineEvent("said", act.at, f"An attempt in {act.source} did not move it", who, said, details, "", log)
    if act.kind == History.Kind.EVENT:
        return _sent(act, who, details)
    if not act.to:
        # The action is stored as the reason.
        return TimelineEvent("hand", act.at, (said or "acted on").capitalize(), who)
    by_hand = " by hand" if act.kind == History.Kind.HAND else ""
    what = f"{_moved(act)}{by_hand}"
    return TimelineEvent(str(act.kind), act.at, what, who, said, details, traceback, log)


def _sent(act: History, who: str, details: str) -> TimelineEvent:
    """Return the entry of an event: its name begins the stored reason."""
    named = EVENT_NAME.match(act.reason)
    name = named.group() if named else ""
    what = f"{_moved(act)} by the event {name}" if act.to else f"Event {name} in {act.source}"
    return TimelineEvent(str(act.kind), act.at, what, who, act.reason[len(name) :].lstrip(": "), details)


def _moved(act: History) -> str:
    return f"{act.source} \N{RIGHTWARDS ARROW} {act.to}"


def _reported(report: Report, crew: dict[str, str]) -> TimelineEvent:
    who = crew.get(report.worker, "")
    if not report.error:
        what = f"An attempt in {report.state} gave a reason to wait"
        return TimelineEvent("said", report.at, what, who, report.message, _repeated(report))
    said = f"{report.error}: {report.message}"
    what = f"An attempt in {report.state} failed"
    return TimelineEvent("error", report.at, what, who, said, _repeated(report), report.traceback, report.log or "")


def _took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"took {seconds * 1000:.0f} ms" if seconds < 1 else f"took {seconds:.1f} s"


def _repeated(report: Report | None) -> str:
    return f"{report.times} times in a row" if report and report.times > 1 else ""
