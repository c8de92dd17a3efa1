"""Problems of actions: tasks that wait for so long for a limit of theirs that somebody should look at it."""

from collections.abc import Iterator

from stator.models import AdminAction, Problem, Survey
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
    found = put_off(survey.using)
    names = dict(queue_rows(survey.using).filter(pk__in={one.queue for one in found}).values_list("pk", "name"))
    yield from (_of_action(one, names[one.queue]) for one in found if one.queue in names)


def _of_action(found: PutOff, queue: str) -> Problem:
    limit, left = found.limit, found.end.seconds if found.end else found.waited
    noun = "task waits" if found.count == 1 and not found.more else "tasks wait"
    done = f" {found.end}" if found.end else ""
    query = (("queue__id__exact", str(found.queue)), ("status", "invisible"), ("action", found.action))
    return Problem(
        "", f"{count_text(found.count, found.more)} {noun} for the {limit.option} of an action{done}",
        {"queue": queue, "action": found.action, **(found.end.numbers if found.end else {})},
        remedy_for(limit, found.action, queue), level="warning" if left > TOO_LONG else "ok", where="tasks.Task",
        model="tasks.task", detail=f"{found.action} in queue {queue} has {limit.told(queue, found.action)}",
        count=found.count, more=found.more, since=found.waited,
        actions=(AdminAction("List", "tasks.task", query=query),),
        command=command_for(found.action, queue),
    )  # fmt: skip
