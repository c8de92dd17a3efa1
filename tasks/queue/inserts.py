"""The INSERT of tasks, for Python, HTTP and Django's Tasks framework: one statement, and by rows elsewhere.

The statement has the queue's rules, as they were last read, in its condition, and does nothing if they have changed.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.models import BigIntegerField, Model, QuerySet

from stator import claims
from stator.models import created
from stator.rows.wakeup import announce
from stator.statements import Parameter
from tasks.actions.registry import declared
from tasks.conf import load_settings
from tasks.rows.queues import QueueRow
from tasks.rows.tables import task_model

if TYPE_CHECKING:
    from tasks.models import Task

# Rows of one statement of the ORM.
BATCH = 500

# The rules of a queue that a publication depends on.
PUBLISHING = (
    "name", "kind", "exclusive_key", "invisible_for", "max_attempts", "actions_elsewhere",
    "publish_paused",  # tasks.extensions.queue_pauses
)  # fmt: skip
PUBLISHING_OVER_HTTP = (*PUBLISHING, "http_actions")

# Rules whose values decide which conditions a statement has.
DECIDING = ("kind", "same_worker_again", "worker_retries", "one_per_worker")

# Values that most queues have; they are part of the text, so that fewer parameters are sent.
USUAL: tuple[object, ...] = (None, "", False, True, [])

# Columns that have the same value in nearly all new tasks.
FIXED = (
    "state",
    "worker_count",  # tasks.extensions.shared
)

# Types whose values are equal in the database if they are equal in Python, and empty values.
PLAIN = {str, int, float, bool, type(None)}
EMPTY: tuple[object, ...] = ({}, [])


class QueueTemplate:
    """A queue for statements that all queues with rules of the same kind share: its values are parameters.

    ``names``: the rules that the statement depends on. ``key``: equal for queues that share statements.
    """

    # Of the rules, those that decide which conditions there are; they are set if they are among the names.
    same_worker_again: bool
    worker_retries: int | None

    def __init__(self, queue: QueueRow, names: tuple[str, ...]) -> None:
        self.queue, self.using, self.tasks = queue, str(queue._state.db), task_model()
        self.pk = Parameter("queue_pk", BigIntegerField())
        self.given = {name: getattr(queue, name) for name in names}
        # None is compared in another way, and some values decide which conditions there are.
        plain = {name: value for name, value in self.given.items() if name in DECIDING or value in USUAL}
        self.key = self.using, names, tuple((name, repr(value)) for name, value in plain.items())
        self.values = {f"queue_{name}": value for name, value in {"pk": queue.pk, **self.given}.items()}
        self.exclusive: bool = queue.exclusive
        for name, value in self.given.items():
            setattr(self, name, value if name in plain else Parameter(f"queue_{name}", _field(type(queue), name)))

    @property
    def same(self) -> QuerySet[Model]:
        """The row of the queue if its configuration has not changed since it was last read, else no row."""
        rows: QuerySet[Model] = QuerySet(type(self.queue), using=self.using)
        return rows.filter(pk=self.pk, **{name: getattr(self, name) for name in self.given})


@cache
def _field(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def publish(queue: QueueRow, rows: list[dict[str, object]], *, over_http: bool) -> "list[Task]":
    """Insert tasks with these values into a queue; return them, or nothing if nothing was done.

    A value of ``state_next_attempt`` is the seconds until then.
    """
    template = QueueTemplate(queue, PUBLISHING_OVER_HTTP if over_http else PUBLISHING)
    common = rows[0] if len(rows) == 1 else _common(rows)
    own = [{name: value for name, value in row.items() if name not in common} for row in rows]
    tasks = insert(template, common, own, later=True, unique=any(row["key"] is not None for row in rows))
    created(template.using, tasks)
    if any(task.state_ready for task in tasks):
        # Processes of other code are not woken, and find the tasks when they poll.
        ready = {task.action for task in tasks if task.state_ready}
        wakes = not queue.actions_elsewhere or any(declared(name, queue.name) for name in ready)
        announce(type(tasks[0]), template.using, wakes=wakes)
    of_task = _field(template.tasks, "queue")
    for task in tasks:
        # The task refers to the queue already, so Django need not check that.
        of_task.set_cached_value(task, queue)
    return tasks


def delay_of(*given: float | None) -> float:
    """Return the seconds until a new task may be claimed: of the task, else of the queue, else the setting's."""
    for seconds in given:
        if seconds is not None:
            return float(seconds)
    return float(load_settings().INVISIBLE_FOR)


def insert(
    template: QueueTemplate,
    common: Mapping[str, object],
    rows: Sequence[Mapping[str, object]],
    *,
    later: bool,
    returning: tuple[str, ...] = (),
    unique: bool = False,
) -> list[Any]:
    """Insert tasks with one statement and return them, or their columns, in order; nothing if nothing was done.

    The options are those of :class:`stator.claims.Insertion`.
    """
    new = claims.Insertion(
        template.key, lambda: template.same, template.values, {**common, "queue_id": template.values["queue_pk"]}, rows,
        fixed=FIXED, later=later, returning=returning, unique=unique,
    )  # fmt: skip
    return claims.insert_at_once(template.tasks, new, using=template.using)


def insert_by_rows(tasks: "Sequence[Task]", using: str) -> None:
    """Insert new instances and set their keys.

    MySQL does not return the keys of several rows, so each row there is a statement of its own.
    """
    if not tasks:
        return
    if connections[using].features.can_return_rows_from_bulk_insert:
        type(tasks[0])._default_manager.using(using).bulk_create(tasks, batch_size=BATCH)
        return
    with transaction.atomic(using=using):
        for task in tasks:
            task.save(force_insert=True, using=using)


def _common(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the values that all rows share, which are sent once; each row keeps its data."""
    return {
        name: value
        for name, value in rows[0].items()
        if name != "data" and _is_common(value, [row[name] for row in rows])
    }


def _is_common(value: object, values: list[object]) -> bool:
    is_plain = type(value) in PLAIN or value in EMPTY
    # 1, 1.0 and True are equal for Python.
    return is_plain and values.count(value) == len(values) and len(set(map(type, values))) == 1
