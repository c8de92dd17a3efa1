"""The life of one task in the order in which it happened, from all that is kept of it."""

import json
from dataclasses import replace
from typing import Any

from stator.admin.sheet import holder
from stator.admin.timeline import Event
from tasks.failures import last_line

# Of each kind the latest, and of one text so much; the rest is in the lists and behind the API.
LATEST = 50
LENGTH = 20_000

# Results, and parts of a shared task, on one page.
MOST = 20

# How each end of a claim looks; others are as those that went well.
KINDS = {"failed": "error", "released": "said", "canceled": "hand"}


def timeline(task: Any, kept: list[Event]) -> list[Event]:
    """What the framework kept of a task, with its publishing and its claims by named workers; the last first."""
    runs = list(task.runs.order_by("-pk")[:LATEST])
    # The framework knows a claim by its token alone.
    names = {holder(run.token): f"worker {run.worker}" for run in runs}
    events = [Event("said", task.created, "published")]
    # How a claim by name began and failed is told by the claim itself.
    told = (event for event in kept if not (event.who in names and event.kind in ("begun", "error")))
    events += (replace(event, who=names.get(event.who, event.who)) for event in told)
    for run in runs:
        events += _of_run(run, task)
    return sorted(events, key=lambda event: event.at, reverse=True)


def as_text(value: Any) -> str:
    """A value as indented JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= LENGTH else f"{text[:LENGTH]} ... ({len(text):,} characters)"


def _of_run(run: Any, task: Any) -> list[Event]:
    who = f"worker {run.worker}"
    events = [Event("begun", run.claimed, "claimed", who)]
    if run.ended is not None:
        said, many = last_line(run.reason), "\n" in run.reason.strip()
        traceback = run.reason[:LENGTH] if many else ""
        events.append(Event(KINDS.get(run.outcome, "move"), run.ended, run.outcome, who, said, traceback=traceback))
    elif task.state_claim != run.token:
        events.append(Event("error", run.lease_until, "lost", who, "The claim ended without a word."))
    return events
