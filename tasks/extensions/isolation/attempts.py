"""A worker's attempt with an isolated action."""

from functools import partial

from stator.extensions.isolation.surroundings import Surroundings
from stator.extensions.reports.attempt_log import LOG, AttemptLog
from stator.texts import Json
from tasks.extensions.isolation.calls import answer_of, process_for_action, value_of
from tasks.worker.attempts import TaskAttempt

# Bytes that the answer of an isolated process may have beyond its value: enough for an error with traceback and log.
ANSWER_MARGIN = 131072


async def call(attempt: TaskAttempt) -> Json:
    """Run the action in a process of its own, which ends with the attempt, and return its result."""
    task, claim = attempt.task, attempt.claim
    around = Surroundings.here(str(task._state.db), claim.operations.scope.path)
    request = {
        "task": task.pk, "token": claim.token.hex, "action": task.action, "queue": task.queue.name,
        "mark": attempt.has_mark_to_write, "worker": attempt.context.worker, **around.as_request(),
    }  # fmt: skip
    attempt.is_marked = False
    process = process_for_action(attempt.settings.PAYLOAD_LIMIT + ANSWER_MARGIN)
    process.reached = partial(claim.take_news, "reached")
    try:
        answer = await attempt.in_thread(partial(answer_of, process, request))
        if "log" in answer:
            LOG.note(claim, AttemptLog.of(answer["log"]))
        return value_of(answer)
    finally:
        process.kill()
