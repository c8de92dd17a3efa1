"""A worker's attempt with an isolated action."""

from functools import partial
from typing import Any

from stator.extensions.isolation.surroundings import Surroundings
from stator.extensions.reports.attempt_log import LOG, AttemptLog
from tasks.actions.registry import Context
from tasks.conf import TaskSettings
from tasks.extensions.isolation.calls import answer_of, process_for_action, value_of
from tasks.worker.attempts import Beginning, in_thread

# Bytes that the answer of an isolated process may have beyond its value: enough for an error with traceback and log.
ANSWER_MARGIN = 131072


async def call(context: Context, settings: TaskSettings, beginning: Beginning) -> Any:
    """Run the action in a process of its own, which ends with the attempt, and return its result."""
    task = context.task
    around = Surroundings.here(task._state.db, task.stator.operations.scope.path)
    request = {
        "task": task.pk, "token": task.stator.token.hex, "action": task.action, "queue": task.queue.name,
        "mark": beginning.has_mark_to_write, "worker": context.worker, **around.as_request(),
    }  # fmt: skip
    beginning.is_marked = False
    process = process_for_action(settings.PAYLOAD_LIMIT + ANSWER_MARGIN)
    process.reached = partial(context.claim.take_news, "reached")
    try:
        answer = await in_thread(partial(answer_of, process, request), settings, beginning)
        if "log" in answer:
            LOG.note(context.claim, AttemptLog.of(answer["log"]))
        return value_of(answer)
    finally:
        process.kill()
