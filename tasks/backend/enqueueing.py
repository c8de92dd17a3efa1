"""Inserts of tasks of Django's Tasks framework: on PostgreSQL one statement, which also finds the queue and its pause.

These tasks have no keys, metadata or workers, so there is far less to check and write than in publishing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from json import loads
from typing import Any

from django.apps import apps
from django.db import connections, router, transaction

from stator.capabilities import capabilities_of
from stator.signals import announce
from tasks.conf import load_settings
from tasks.datetimes import stored
from tasks.exceptions import PublishRefused, QueuePaused
from tasks.inserts import BATCH, insert_with_keys
from tasks.rows.clock import Later
from tasks.sharding.shards import any_copy

# The statement inserts nothing if the queue is missing, exclusive, paused or in several databases. Columns that it does
# not list take their defaults. The unique index on names finds the queue.
STATEMENT = """
INSERT INTO {task} (queue_id, action, data, priority, max_attempts, timeout, retention, state_ready, state_next_attempt,
 metadata, worker_ids, worker_count, state)
SELECT queue.id, %s, given.data::jsonb, %s::bigint, %s::integer, %s::float8, %s::float8,
 COALESCE(%s::timestamptz <= statement_timestamp(), COALESCE(queue.invisible_for, %s::float8) = 0),
 COALESCE(%s::timestamptz,
  statement_timestamp() + NULLIF(COALESCE(queue.invisible_for, %s::float8), 0) * interval '1 second'),
 '{{}}'::jsonb, '[]'::jsonb, 1, 'pending'
FROM {queue} AS queue CROSS JOIN {given} AS given (data, place)
WHERE queue.name = %s AND queue.kind = 'simple' AND queue.databases = '[]'
 AND (NOT queue.publish_paused OR queue.pause_until <= statement_timestamp())
ORDER BY given.place
RETURNING id, created, state_ready
"""
# A single task as a value is cheaper for the server; many tasks as one text cost nothing extra here.
ONE, MANY = "(VALUES (%s, 1))", "json_array_elements(%s::json) WITH ORDINALITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The options that tasks enqueued together share. None takes the queue's value, or else the setting's."""

    action: str
    priority: int
    max_attempts: int | None
    timeout: float | None
    retention: float | None
    run_after: datetime | None


def insert(queue: str, common: Enqueued, data: Sequence[str]) -> list[tuple[int, datetime]]:
    """Insert one task for each JSON text, all or none; return their numbers and creation times in order.

    A missing queue is created. Raise ``QueuePaused`` if it takes no tasks now, ``PublishRefused`` if it is exclusive.
    Without ``run_after``, the queue's ``invisible_for`` applies.
    """
    using = router.db_for_write(_model())
    at_once = capabilities_of(connections[using]).inserts_from_json
    # The ORM reads the queue first, so it can say what is wrong with it.
    return (_at_once(using, queue, common, data) if at_once else []) or _by_rows(_queue(using, queue), common, data)


def _at_once(using: str, queue: str, common: Enqueued, data: Sequence[str]) -> list[tuple[int, datetime]]:
    """Insert by :data:`STATEMENT`; return an empty list if the queue cannot take tasks this way."""
    insert_all = _insert if len(data) <= BATCH else _in_parts
    made = insert_all(using, queue, common, data)
    if made and made[0][2]:
        announce(_model(), using)
    return [(pk, created) for pk, created, _ in made]


def _in_parts(using: str, queue: str, common: Enqueued, data: Sequence[str]) -> list[tuple[int, datetime, bool]]:
    made: list[tuple[int, datetime, bool]] = []
    try:
        with transaction.atomic(using=using):
            for start in range(0, len(data), BATCH):
                part = _insert(using, queue, common, data[start : start + BATCH])
                if not part:
                    raise _Refused
                made += part
    except _Refused:
        return []
    return made


class _Refused(Exception):
    """Raised to roll back earlier batches: the queue was paused or deleted meanwhile."""


def _insert(using: str, queue: str, common: Enqueued, data: Sequence[str]) -> list[tuple[int, datetime, bool]]:
    """Insert one batch; return each task's number, creation time and whether it is ready."""
    # Imported by name: the module needs psycopg, which a project on another database may not have.
    send = import_module("stator.db.session").send_in_passing
    one, invisible_for = len(data) == 1, load_settings().INVISIBLE_FOR
    values = [
        common.action, common.priority, common.max_attempts, common.timeout, common.retention,
        common.run_after, invisible_for, common.run_after, invisible_for,
        data[0] if one else f"[{','.join(data)}]", queue,
    ]  # fmt: skip
    # Numbers are given in order, but RETURNING may list the rows in another.
    return sorted(send(connections[using], _statement(using, one), values))


@cache
def _statement(using: str, one: bool) -> str:
    quote = connections[using].ops.quote_name
    return STATEMENT.format(
        task=quote(_model()._meta.db_table),
        queue=quote(apps.get_model("tasks", "Queue")._meta.db_table),
        given=ONE if one else MANY,
    )


def _by_rows(queue: Any, common: Enqueued, data: Sequence[str]) -> list[tuple[int, datetime]]:
    using, values = queue._state.db, asdict(common)
    values |= _due(queue, values.pop("run_after"))
    rows = [_model()(queue=queue, data=loads(text), **values) for text in data]
    insert_with_keys(rows, using)
    return [(row.pk, row.created) for row in rows]


def _due(queue: Any, run_after: datetime | None) -> dict[str, Any]:
    """Return the columns for the due time; none if the task is due at once."""
    if run_after is not None:
        # If the time has already come, the row is inserted as ready.
        return {"state_next_attempt": stored(run_after, queue._state.db)}
    delay = load_settings().INVISIBLE_FOR if queue.invisible_for is None else queue.invisible_for
    return {"state_ready": False, "state_next_attempt": Later(delay)} if delay else {}


def _queue(using: str, name: str) -> Any:
    """Return the queue of that name, in one of its databases; create it if it is missing."""
    queue, _ = apps.get_model("tasks", "Queue").objects.using(using).get_or_create(name=name)
    if queue.publishing_paused:
        raise QueuePaused(f"queue {queue.name} accepts no tasks now: {queue.pause_description}")
    if queue.exclusive:
        raise PublishRefused(
            f"queue {queue.name} is exclusive by {queue.exclusive_key!r}, and tasks of Django's framework have no"
            " metadata that could have a value of it; give them a queue that is simple"
        )
    return any_copy(queue) if queue.databases else queue


def _model() -> Any:
    # Looked up on use: tasks may be declared before models are loaded.
    return apps.get_model("tasks", "Task")
