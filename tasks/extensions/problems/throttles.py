"""Problems of actions: tasks that wait for so long for a limit of theirs that somebody should look at it."""

from collections.abc import Iterator

from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import span
from stator.models import AdminAction, Problem, ProblemKind, Reason
from stator.texts import count_text, counted
from tasks.extensions.throttles.frequency import UsedLimit
from tasks.extensions.throttles.put_off import PutOff, command_for, put_off, remedy_for, signs
from tasks.rows.tables import queue_rows
from tasks.rows.tasks import TaskRow

# The framework's reasons that repeat what the latest attempt said.
SAID = ("backoff", "last_said")

# Seconds: a backlog that takes longer is a problem.
TOO_LONG = 3600.0


def throttled(survey: Survey) -> Iterator[Problem]:
    """Find actions whose tasks wait for a limit: a problem if the last of them is done in more than an hour.

    Two statements if no action has limits.
    """
    if not any(rows.exists() for rows in signs(survey.using)):
        return
    waiting = put_off(survey.using)
    names = dict(queue_rows(survey.using).filter(pk__in={one.queue for one in waiting}).values_list("pk", "name"))
    yield from (_of_action(one, names[one.queue]) for one in waiting if one.queue in names)


def _of_action(waiting: PutOff, queue: str) -> Problem:
    limit, left = waiting.limit, waiting.end.seconds if waiting.end else waiting.waited
    noun = "task waits" if waiting.count == 1 and not waiting.more else "tasks wait"
    done = f" {waiting.end}" if waiting.end else ""
    query = (("queue__id__exact", str(waiting.queue)), ("status", "invisible"), ("action", waiting.action))
    return Problem(
        "", f"{count_text(waiting.count, waiting.more)} {noun} for the {limit.option} of an action{done}",
        {"queue": queue, "action": waiting.action, **(waiting.end.numbers if waiting.end else {})},
        remedy_for(limit, waiting.action, queue), level="warning" if left > TOO_LONG else "ok", where="tasks.Task",
        model="tasks.task", detail=f"{waiting.action} in queue {queue} has {limit.text(queue, waiting.action)}",
        count=waiting.count, more=waiting.more, since=waiting.waited,
        actions=(AdminAction("List", "tasks.task", query=query),),
        command=command_for(waiting.action, queue),
    )  # fmt: skip


THROTTLED = ProblemKind(
    "throttled",
    remedy="wait, or raise the limit",
    model="tasks.task",
    find=throttled,
    level="warning",
    signs=signs,
    keeps="waiting for a limit of their action",
)


def limited(row: TaskRow, framework: list[Reason]) -> list[Reason]:
    """Return the framework's reasons, with the limit of the action in place of what its attempt said."""
    said = next((reason for reason in framework if reason.code in SAID), None)
    limit = UsedLimit.read(str(said.numbers.get("message", ""))) if said else None
    if said is None or limit is None:
        return framework
    name = row.queue.name
    turn = span((row.state_next_attempt - row.read_at).total_seconds()) if row.state_next_attempt else ""
    sentence = f"Waits for a limit of action {row.action}, {limit.text(name, row.action)}: it asks again in {turn}."
    numbers = {"action": row.action, "limit": limit.rate or limit.concurrency, "key": limit.key}
    for behind in put_off(str(row._state.db), queue=row.queue_id, action=row.action)[:1]:
        sentence = f"{sentence[:-1]}; {counted(behind.count, 'task')} {'waits' if behind.count == 1 else 'wait'}"
        sentence += f" {behind.end}." if behind.end else "."
        numbers |= {"waiting": behind.count, **(behind.end.numbers if behind.end else {})}
    remedy = f"Wait, or {remedy_for(limit, row.action, name)}; a retry alone does not help."
    reason = Reason("throttled", sentence, numbers, remedy)
    at = framework.index(said)
    return [*framework[:at], reason, *(one for one in framework[at + 1 :] if one.code not in (*SAID, "not_due"))]
