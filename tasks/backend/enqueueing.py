"""Inserts of tasks of Django's Tasks framework.

These tasks have no keys, metadata or workers, so there is far less to check and write than in publishing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from json import loads
from typing import TYPE_CHECKING

from django.db import router

from stator.rows.wakeup import announce
from stator.scopes import entered
from stator.statements import JsonText
from tasks.datetimes import stored
from tasks.exceptions import PublishRefused
from tasks.queue.inserts import PUBLISHING, QueueTemplate, delay_of, insert, insert_by_rows
from tasks.queue.parts import place_of_task
from tasks.rows.clock import Later
from tasks.rows.tables import queue_rows, task_model

if TYPE_CHECKING:
    from tasks.models import Queue

RETURNING = ("id", "created", "state_ready")
# The values that all tasks of the framework have.
ALWAYS: dict[str, object] = {"metadata": {}, "worker_ids": [], "state": "pending"}
ALWAYS |= {"worker_count": 1}  # tasks.extensions.shared

# The most queues that are remembered, and the queues as they were last read, by schema, database and name.
MAX_KNOWN = 1000
_known: dict[tuple[str, str, str], QueueTemplate] = {}


def enqueue(
    queue: str, options: Mapping[str, object], run_after: datetime | None, data: Sequence[str], invisible_for: float
) -> list[tuple[int, datetime]]:
    """Insert one task for each JSON text, all or none; return their numbers and creation times in order.

    ``options``: the values of all. ``invisible_for``: the setting's; without ``run_after`` it applies unless the queue
    has a value. A missing queue is created. Raise ``QueuePaused`` if it takes no tasks now, ``PublishRefused`` if it is
    exclusive.
    """
    using = router.db_for_write(task_model())
    key = entered(), using, queue
    known = _known.get(key)
    if known and (made := _in_one_statement(known, options, run_after, data, invisible_for)):
        return made
    # The ORM reads the queue, so it can say what is wrong with it.
    row = _queue(using, queue)
    template = QueueTemplate(row, PUBLISHING)
    made = _in_one_statement(template, options, run_after, data, invisible_for)
    if made and row.takes_at_once:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = template
    return made or _by_rows(row, options, run_after, data)


def _in_one_statement(
    template: QueueTemplate,
    options: Mapping[str, object],
    run_after: datetime | None,
    data: Sequence[str],
    invisible_for: float,
) -> list[tuple[int, datetime]]:
    shared: dict[str, object] = {**ALWAYS, **options}
    if run_after:
        shared["state_next_attempt"] = stored(run_after, template.using)
    elif delay := delay_of(template.values["queue_invisible_for"], invisible_for):
        shared["state_next_attempt"] = delay
    rows: list[dict[str, object]] = [{"data": JsonText(text), **place_of_task(template.queue)} for text in data]
    if len(rows) == 1:
        # A shared value is cheaper for the server than a row of values.
        shared, rows = {**shared, **rows[0]}, [{}]
    made = insert(template, shared, rows, later=run_after is None, returning=RETURNING)
    if made and made[0][2]:
        announce(template.tasks, template.using)
    return [(pk, created) for pk, created, _ in made]


def _by_rows(
    queue: "Queue", options: Mapping[str, object], run_after: datetime | None, data: Sequence[str]
) -> list[tuple[int, datetime]]:
    using = str(queue._state.db)
    due: dict[str, object] = {}
    if run_after:
        # If the time has already come, the row is inserted as ready.
        due = {"state_next_attempt": stored(run_after, using)}
    elif delay := delay_of(queue.invisible_for):
        due = {"state_ready": False, "state_next_attempt": Later(delay)}
    tasks = [
        queue.tasks.model(queue=queue, data=loads(text), **options, **due, **place_of_task(queue)) for text in data
    ]
    insert_by_rows(tasks, using)
    return [(task.pk, task.created) for task in tasks]


def _queue(using: str, name: str) -> "Queue":
    """Return the queue with that name; create it if it is missing."""
    queues = queue_rows(using)
    # Packages that look for repeated queries would take a ``get()`` in each call for one of them.
    queue = queues.filter(name=name).first() or queues.get_or_create(name=name)[0]
    queue.refuse_tasks()
    if queue.exclusive:
        raise PublishRefused(
            f"queue {queue.name} is exclusive by {queue.exclusive_key!r}, and tasks of Django's framework have no"
            " metadata that could have a value of it; give them a queue that is simple"
        )
    return queue
