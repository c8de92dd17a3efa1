"""Tasks that wait behind those of one queue, or in a queue behind those with one value in their metadata."""

import json
from collections import Counter
from collections.abc import Iterator
from shlex import quote

from django.db.models.functions import Coalesce

from stator.extensions.problems.starving import InLine, Starving, line_ends, starving
from stator.extensions.problems.surveyed import Survey
from stator.models import AdminAction, Problem
from stator.texts import JsonObject
from tasks.extensions.queue_pauses.pausing import claims_are_paused
from tasks.rows.tables import Rows, queue_rows, task_rows

# The queues at the head of the line that are looked into, the most paused ones, and the names in metadata.
QUEUES, MAX_PAUSED, NAMES = 3, 200, 10


def starved(survey: Survey) -> Iterator[Problem]:
    """Find what holds the line of worker processes, and of the queues at its head: five statements, or seven.

    Nothing is read unless a task has waited for long, and the end of a line only if one value holds its head. Indexes
    ``st_ready``, ``tasks_task_ready_in_queue``.
    """
    tasks = survey.models.get("tasks.task")
    if tasks is None or not tasks.depths.is_behind:
        return
    paused = list(queue_rows(survey.using).filter(claims_are_paused()).values_list("pk", flat=True)[:MAX_PAUSED])
    ready = task_rows(survey.using).filter(state_ready=True).exclude(queue__in=paused)
    [head] = _ends([ready], "priority", "queue")
    [tail] = _ends([ready] if Starving.is_possible(head) else [], "-priority", "queue") or [[]]
    first = [pk for pk, _ in Counter(one.values[0] for one in head).most_common(QUEUES)]
    others = {one.values[0] for one in (*head, *tail)}
    names = dict(queue_rows(survey.using).filter(pk__in=others).values_list("pk", "name"))
    if whole := starving(["queue"], _named(head, names), _named(tail, names)):
        yield _of_queues(whole)
    yield from _inside({pk: ready.filter(queue=pk) for pk in first if pk in names}, names)


def _inside(lines: dict[int, Rows], names: dict[int, str]) -> Iterator[Problem]:
    """Yield what holds the line of each of some queues: one statement, and one if anything holds any."""
    heads = dict(zip(lines, _ends([*lines.values()], "priority", "metadata"), strict=True))
    keys = {pk: [name for name, _ in _names_in(head).most_common(NAMES)] for pk, head in heads.items()}
    shown = {pk: [_values(one, keys[pk]) for one in head] for pk, head in heads.items()}
    held = [pk for pk, head in shown.items() if Starving.is_possible(head)]
    for pk, tail in zip(held, _ends([lines[pk] for pk in held], "-priority", "metadata"), strict=True):
        if inside := starving(keys[pk], shown[pk], [_values(one, keys[pk]) for one in tail]):
            yield _of_metadata(inside, names[pk], pk)


def _ends(lines: list[Rows], order: str, name: str) -> list[list[InLine]]:
    """Return the first tasks of each line in an order, with the value of one column; one statement."""
    since = Coalesce("state_next_attempt", "state_changed")
    return line_ends([line.order_by(order) for line in lines], since, name)


def _named(line: list[InLine], names: dict[int, str]) -> list[InLine]:
    return [one._replace(values=(names.get(one.values[0]),)) for one in line]


def _names_in(head: list[InLine]) -> Counter[str]:
    """Return how many tasks have each name in their metadata."""
    return Counter(name for one in head for name in one.values[0])


def _values(one: InLine, names: list[str]) -> InLine:
    said = [one.values[0].get(name) for name in names]
    # Lists and objects are no values that take turns.
    return one._replace(values=tuple(each if isinstance(each, str | int | float) else None for each in said))


def _of_queues(starving: Starving) -> Problem:
    command = f"manage.py runstator tasks.Task --exclude-queue {quote(str(starving.value))}"
    remedy = f"start a worker for the other queues: {command}"
    query = (("status", "pending"),)
    return _problem(starving, {"queue": str(starving.value)}, remedy, command, query=query)


def _of_metadata(starving: Starving, queue: str, pk: int) -> Problem:
    other = quote(f"{starving.name}={json.dumps(starving.others[0])}")
    remedy = (
        f"start a worker for the others, or publish the many with a larger priority; fair_by = {starving.name!r} lets "
        "them take turns in a model of your own"
    )
    command = f"manage.py runstator tasks.Task --queue {quote(queue)} --metadata {other}"
    query, detail = (("queue__id__exact", str(pk)), ("status", "pending")), f"queue {queue}: {starving.detail}"
    return _problem(starving, {"queue": queue, "field": starving.name}, remedy, command, query=query, detail=detail)


def _problem(
    starving: Starving,
    numbers: JsonObject,
    remedy: str,
    command: str,
    *,
    query: tuple[tuple[str, str], ...],
    detail: str = "",
) -> Problem:
    return Problem(
        "", starving.sentence.replace("objects", "tasks"), {**numbers, "others": len(starving.others)}, remedy,
        where="tasks.Task", model="tasks.task", detail=detail or starving.detail, count=len(starving.others),
        since=starving.waited, actions=(AdminAction("List", "tasks.task", query=query),), command=command,
    )  # fmt: skip
