"""The timeline of one task: its publishing, its claims and the framework's history, in order."""

import json
from dataclasses import replace

from stator.admin.row_summary import holder
from stator.admin.timeline import TimelineEvent
from tasks.failures import last_line
from tasks.models import Run, Task

# The most events of each kind, and the most characters of each text. The lists and the API have the rest.
LATEST = 50
LENGTH = 20_000

# The most results, and the most parts of a shared task, on one page.
MAX_SHOWN = 20

# The kind of event for each outcome of a claim; any other outcome is shown as a move.
KINDS = {"failed": "error", "lost": "error", "released": "said", "canceled": "hand"}


def timeline(task: Task, kept: list[TimelineEvent]) -> list[TimelineEvent]:
    """Return the framework's events of a task, its publishing and its claims by named workers, the latest first."""
    runs = list(task.runs.order_by("-pk")[:LATEST])
    # The framework knows a claim only by its token.
    names = {holder(run.token): f"worker {run.worker}" for run in runs}
    events = [TimelineEvent("said", task.created, "published")]
    for event in kept:
        # The framework adds the place of a process that it knows.
        name = names.get(event.who.partition(" (")[0])
        # The claim itself shows how it began and ended, so the framework's event would be a duplicate.
        if name is None:
            events.append(event)
        elif event.kind not in ("begun", "error"):
            events.append(replace(event, who=name, said="", traceback=""))
    for run in runs:
        events += _of_run(run, task)
    return sorted(events, key=lambda event: event.at, reverse=True)


def as_text(value: object) -> str:
    """Return a value as indented JSON, truncated if it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= LENGTH else f"{text[:LENGTH]} ... ({len(text):,} characters)"


def _of_run(run: Run, task: Task) -> list[TimelineEvent]:
    who = f"worker {run.worker}"
    events = [TimelineEvent("begun", run.claimed, "claimed", who)]
    if run.ended is not None:
        said, many = last_line(run.reason), "\n" in run.reason.strip()
        traceback = run.reason[:LENGTH] if many else ""
        events.append(
            TimelineEvent(KINDS.get(run.outcome, "move"), run.ended, run.outcome, who, said, traceback=traceback)
        )
    elif task.state_claim != run.token:
        events.append(TimelineEvent("error", run.lease_until, "lost", who, "The claim ended without an answer."))
    return events
