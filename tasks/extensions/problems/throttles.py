"""Problems of actions: tasks that wait for so long for a limit of theirs that somebody should look at it."""

from collections.abc import Iterator

from stator.extensions.problems.surveyed import Survey
from stator.models import AdminAction, Problem
from stator.texts import count_text
from tasks.queue.put_off import PutOff, command_for, put_off, remedy_for, signs
from tasks.rows.tables import queue_rows

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
        model="tasks.task", detail=f"{waiting.action} in queue {queue} has {limit.told(queue, waiting.action)}",
        count=waiting.count, more=waiting.more, since=waiting.waited,
        actions=(AdminAction("List", "tasks.task", query=query),),
        command=command_for(waiting.action, queue),
    )  # fmt: skip
