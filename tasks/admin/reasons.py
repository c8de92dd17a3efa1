"""Why a task is where it is, with what to do about it, for the people of a queue."""

from collections.abc import Iterator
from typing import Any

from stator.admin.timeline import Event
from stator.models import Reason

# What to do about each reason; of those that are not here what the framework says.
REMEDIES = {
    "part": "Its siblings are listed on the page of the whole.",
    "dead_letter": "Find out why; once the cause is mended, requeue it.",
    "terminal": "",
    "external": "",
    "shared": "It ends with its parts; look at those.",
    "held": "Wait. If that worker is gone, its lease ends by itself; unlock to end it now.",
    "claim_paused": "Ask whoever paused the queue, then resume it there.",
    "attempts_used_up": "Wait for that pass; then it can be requeued.",
    "exclusive_held": "Wait for that task.",
    "exclusive_behind": "Wait for that task, or cancel it.",
    "no_handler": "Deploy code that has the action, or tell the queue that programs elsewhere run its actions.",
    "no_eligible_worker": "Start another worker.",
    "only_workers": "Look whether those workers are up.",
}
# Nothing goes on by itself.
TROUBLE = {"dead_letter", "no_handler", "no_eligible_worker"}


def told_reasons(task: Any, reasons: list[dict[str, Any]], events: list[Event]) -> list[dict[str, Any]]:
    """What somebody who comes to mend it wants to know first, then the reasons; each with its remedy."""
    beside = [{"reason": reason, "remedy": ""} for reason in _beside(task, events)]
    is_held = any(one["reason"].code == "held" for one in reasons)
    # The framework knows who holds it by a token alone.
    told = [*beside, *(one for one in reasons if not (is_held and one["reason"].code == "leased"))]
    return [one | {"remedy": REMEDIES.get(one["reason"].code, one["remedy"])} for one in told]


def _beside(task: Any, events: list[Event]) -> Iterator[Reason]:
    if task.state == "errored":
        said = next((event.said for event in events if event.kind == "error" and event.said), "")
        last = f" The last error: {said}" if said else ""
        yield Reason("dead_letter", f"It ended without success and is kept for people.{last}")
    if task.whole_id is not None:
        yield Reason("part", f"It is a part of task {task.whole_id}.", {"whole": task.whole_id})
