"""The entries of the history and the latest report of one row in sentences."""

from collections.abc import Iterator
from dataclasses import replace

from stator.admin.timeline import TOLD, TimelineEvent, move_text
from stator.extensions.reports.models import History, Report
from stator.extensions.reports.reading import history_of
from stator.graph.failures import lease_lost
from stator.models import StatorModel, home_of, records_of


def entries(row: StatorModel, most: int) -> Iterator[tuple[str, TimelineEvent]]:
    """Yield the latest entries, each with the id of the worker that made it; two statements.

    If the app keeps the attempts itself, these take a third.
    """
    key = type(row), row.pk, home_of(row)
    report = records_of(Report, *key).first()
    kept = history_of(*key, most)
    told = next((act for act in kept if report and report.error and act.fingerprint == report.fingerprint), None)
    yield from (_entry(act, report if act is told else None) for act in kept)
    yield from (("", event) for event in _beginnings(row, kept))
    if report is not None and told is None:
        yield report.worker, _reported(report)


def _beginnings(row: StatorModel, kept: list[History]) -> list[TimelineEvent]:
    """Return where lives began after others of the same key: the count of moves begins anew there."""
    after = [(act.version, act.at) for act in kept]
    since = [(row.state_version, row.state_changed), *after]
    return [
        TimelineEvent("life", at, "A new object with this key, of which the entries below say nothing")
        for (version, at), (before, _) in zip(since, after, strict=False)
        if version < before
    ]


def _entry(act: History, report: Report | None) -> tuple[str, TimelineEvent]:
    """Return an entry with the id of the worker that made it, or "" and who did."""
    event = _event(act, report, act.actor or "code")
    return "" if act.actor else act.worker, replace(event, moved=(act.source, act.to) if act.to else None)


def _event(act: History, report: Report | None, who: str) -> TimelineEvent:
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
    if told := TOLD.get(act.kind):
        return told(act, who, details)
    if not act.to:
        # The action is stored as the reason.
        return TimelineEvent("hand", act.at, (said or "acted on").capitalize(), who)
    by_hand = " by hand" if act.kind == History.Kind.HAND else ""
    what = f"{move_text(act)}{by_hand}"
    return TimelineEvent(str(act.kind), act.at, what, who, said, details, traceback, log)


def _reported(report: Report) -> TimelineEvent:
    if not report.error:
        what = f"An attempt in {report.state} gave a reason to wait"
        return TimelineEvent("said", report.at, what, said=report.message, details=_repeated(report))
    said = f"{report.error}: {report.message}"
    what = f"An attempt in {report.state} failed"
    return TimelineEvent("error", report.at, what, "", said, _repeated(report), report.traceback, report.log or "")


def _took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"took {seconds * 1000:.0f} ms" if seconds < 1 else f"took {seconds:.1f} s"


def _repeated(report: Report | None) -> str:
    return f"{report.times} times in a row" if report and report.times > 1 else ""
