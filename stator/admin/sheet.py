"""What the admin says about one row, in words."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from stator.columns import parked_from
from stator.conf import read_settings
from stator.durations import span
from stator.moves import owner_of
from stator.reports import History, Report
from stator.workers import worker_of

NONE = "\N{EM DASH}"
LATEST = 50


def age(row: Any) -> str:
    """How long the row has been in its state."""
    return span(_seconds_since(row.state_changed))


def lease(row: Any) -> str:
    """Who holds the row, and for how much longer."""
    if row.state_claim is None:
        return NONE
    left = -_seconds_since(row.state_locked_until) if row.state_locked_until else 0.0
    until = f"{span(left)} left" if left > 0 else f"ran out {span(-left)} ago"
    return f"worker {worker_of(row.state_claim)}, {until}"


def next_attempt(row: Any) -> str:
    """When the row will be attempted, or why it will not."""
    state = row.state_graph.states.get(row.state)
    if state is None:
        return "never: unknown state"
    if not state.automatic:
        return NONE
    if row.state_claim is not None:
        return "running"
    if is_quarantined(row):
        return "never: quarantined"
    if not row.state_ready and row.state_next_attempt and row.state_next_attempt >= parked_from():
        return "waits for another object"
    left = -_seconds_since(row.state_next_attempt) if row.state_next_attempt else 0.0
    return "now" if row.state_ready or left <= 0 else f"in {span(left)}"


def is_quarantined(row: Any) -> bool:
    """Whether the row lost so many leases that workers leave it alone."""
    return bool(row.state_crashes >= read_settings()[0].MAX_CRASHES)


def latest_report(row: Any) -> Report | None:
    """What the latest attempt that had something to say said."""
    return Report.objects.using(row._state.db).filter(**_key(row)).first()


def latest_history(row: Any) -> list[History]:
    """What happened to the row, newest first."""
    acts = History.objects.using(row._state.db).filter(**_key(row))
    return list(acts.order_by("-at", "-pk")[:LATEST])


def _key(row: Any) -> dict[str, str]:
    return {"model_label": owner_of(type(row))._meta.label_lower, "object_pk": str(row.pk)}


def _seconds_since(moment: datetime) -> float:
    now = timezone.now()
    return (now - moment).total_seconds()
