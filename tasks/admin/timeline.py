"""The life of one task in the order in which it happened, from all that is kept of it."""

import json
from dataclasses import dataclass
from typing import Any

from stator.models import History, Report
from tasks.models import Task

# Of each kind the latest, and of one text so much; the rest is in the lists and behind the API.
LATEST = 50
LENGTH, LINE = 20_000, 300

# Results, and parts of a shared task, on one page.
MOST = 20


@dataclass(frozen=True, slots=True)
class Event:
    """When, what, by whom, and what was said; ``detail``: a traceback, for those who may see it."""

    at: Any
    what: str
    by: str
    said: str = ""
    detail: str = ""
    kind: str = ""


def timeline(task: Any, *, tracebacks: bool) -> list[Event]:
    """The latest events of a task, the last first."""
    events = [Event(task.created, "published", "", kind="published")]
    for run in task.runs.order_by("-pk")[:LATEST]:
        events += _of_run(run, task, tracebacks)
    kept = {"model_label": Task._meta.label_lower, "object_pk": str(task.pk)}
    using = task._state.db
    report = Report.objects.using(using).filter(**kept).exclude(traceback="").first() if tracebacks else None
    for act in History.objects.using(using).filter(**kept).order_by("-pk")[:LATEST]:
        events.append(_of_act(act, report))
    return sorted(events, key=lambda event: event.at, reverse=True)


def as_text(value: Any) -> str:
    """A value as indented JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= LENGTH else f"{text[:LENGTH]} ... ({len(text):,} characters)"


def last_line(text: str) -> str:
    """Of a traceback what it comes to; of anything else its beginning."""
    lines = text.strip().splitlines()
    return lines[-1][:LINE] if lines else ""


def _of_run(run: Any, task: Any, tracebacks: bool) -> list[Event]:
    events = [Event(run.claimed, "claimed", run.worker, kind="claimed")]
    if run.ended is not None:
        said, many = last_line(run.reason), "\n" in run.reason.strip()
        detail = run.reason[:LENGTH] if many and tracebacks else ""
        events.append(Event(run.ended, run.outcome, run.worker, said, detail, run.outcome))
    elif task.state_claim != run.token:
        events.append(Event(run.lease_until, "lost", run.worker, "The claim ended without a word.", kind="failed"))
    return events


def _of_act(act: Any, report: Any) -> Event:
    by = act.actor or (f"worker {act.worker}" if act.worker else "")
    took = f"after {act.duration:.2f} s" if act.duration is not None else ""
    what = f"moved to {act.to}" if act.to else "error" if act.error else act.reason or str(act.get_kind_display())
    said = act.error or (act.reason if act.to else "") or took
    # The report has the traceback of the latest error alone.
    is_latest = report is not None and act.error == f"{report.error}: {report.message}"
    kind = "failed" if act.error else act.to or act.kind
    return Event(act.at, what, by, said[:LINE], report.traceback[:LENGTH] if is_latest else "", kind)
