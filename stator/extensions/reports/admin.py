"""The reports and the history in the admin: their lists, entries on the page of an object, and errors in the search."""

from collections.abc import Iterator
from dataclasses import replace

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.admin.links import list_of, page_of
from stator.admin.read_only import OfObjectAdmin, newest
from stator.admin.search import FURTHER
from stator.admin.timeline import SENTENCES, TimelineEvent, add_entries, move_text
from stator.extensions.admin.sections import Cell
from stator.extensions.reports.models import History, Report
from stator.extensions.reports.reading import history_of
from stator.graph.failures import lease_lost
from stator.models import StatorModel, home_of, records_of
from stator.rows.keys import shown_text
from stator.rows.meta import model_of


def entries(row: StatorModel, most: int) -> Iterator[tuple[str, TimelineEvent]]:
    """Yield the latest entries, each with the id of the worker that made it; two statements.

    If the app keeps the attempts itself, these take a third.
    """
    key = type(row), row.pk, home_of(row)
    report = records_of(Report, *key).first()
    kept = history_of(*key, most)
    latest = next((act for act in kept if report and report.error and act.fingerprint == report.fingerprint), None)
    yield from (_entry(act, report if act is latest else None) for act in kept)
    yield from (("", event) for event in _beginnings(row, kept))
    if report is not None and latest is None:
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
    if event_of := SENTENCES.get(act.kind):
        return event_of(act, who, details)
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


# Errors that the search shows.
OF_ERRORS = 20


@admin.register(Report)
class ReportAdmin(OfObjectAdmin):
    """Reports of the latest attempts; a user who may view these rows sees tracebacks."""

    list_display = ("at", "model_label", "of_object", "state", "error", "message_line", "times", "worker")
    list_filter = ("at",)
    search_fields = ("=model_label", "=object_pk", "=fingerprint", "=error")
    ordering = ("-at", "-pk")

    @admin.display(description="message")
    def message_line(self, report: Report) -> str:
        """Return the beginning of the message."""
        return report.message[:100]


@admin.register(History)
class HistoryAdmin(OfObjectAdmin):
    """History of objects: moves, errors, manual actions."""

    list_display = ("at", "model_label", "of_object", "kind", "source", "to", "actor", "reason")
    list_filter = ("kind", "at")
    search_fields = ("=model_label", "=object_pk", "=actor", "=fingerprint")
    ordering = ("-pk",)


def _in_errors(site: AdminSite, request: HttpRequest, words: str) -> Iterator[tuple[Cell, ...]]:
    """Yield the objects whose latest error has the words, for models whose objects the user may all see."""
    pages = Pages(site, request)
    reports = newest(Report.objects.all(), "at").exclude(error="").order_by("-at")
    matching = reports.filter(message__stator_icontains=words) | reports.filter(error__stator_icontains=words)
    columns = ("model_label", "object_pk", "state", "error", "message")
    for label, key, state, error, message in matching.values_list(*columns)[:OF_ERRORS]:
        model = model_of(label)
        if model is not None and issubclass(model, StatorModel) and pages.sees_all(model):
            url = page_of(site, model, key)
            text = f"{error}: {message}"[:200]
            yield (
                Cell(model._meta.label, list_of(site, model)),
                Cell(shown_text(model, key), url),
                Cell(state),
                Cell(text),
            )


add_entries(entries)
FURTHER.append(_in_errors)
