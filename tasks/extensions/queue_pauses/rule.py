"""The rule that nothing of a queue is claimed while its claims are paused."""

from typing import cast

from tasks.extensions.queue_pauses.pausing import QueuePausing, claims_are_paused
from tasks.queue.eligibility import PROCESS, RULES, Explanation, Rule
from tasks.rows.tables import Rows
from tasks.rows.tasks import TaskRow


def connect() -> None:
    """Let worker processes obey it, before all else. Named workers ask no queue whose claims are paused."""
    RULES.insert(0, Rule("claim_paused", PROCESS, lambda asking: ~claims_are_paused(asking.of_queue), _paused))


def _paused(task: TaskRow, rows: Rows) -> Explanation:
    queue = cast("QueuePausing", task.queue)
    numbers = {"author": queue.pause_author, "reason": queue.pause_reason, "until": queue.pause_until}
    remedy = "Check whether its reason still holds, then resume."
    return f"Nothing of queue {queue.name} is claimed: {queue.pause_description}.", numbers, remedy
