"""Copies of queues that are in several databases: the list of databases, and how copies are kept equal.

The row in the home database, where queues are configured, is authoritative. The copies are made equal to it.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from django.core import checks
from django.core.exceptions import ValidationError
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connections, transaction
from django.db.models import Q

from stator.models import Now
from tasks.exceptions import ShardUnavailable, TaskError
from tasks.rows.queues import QueueRow, home
from tasks.rows.tables import queue_rows, task_model
from tasks.sharding.task_ids import number_from

QueueT = TypeVar("QueueT", bound=QueueRow)

logger = logging.getLogger("tasks.shards")

# Seconds for which a database that did not answer is not asked again, unless no other database remains.
REST = 10.0
REMEDY = "make it with: manage.py tasks shards --repair"

_resting: dict[str, float] = {}


def connect() -> None:
    """Register the check with Django."""
    checks.register(check_queues, "tasks", checks.Tags.database)


# The list


def check_queues(
    app_configs: object = None, databases: Sequence[str] | None = None, **kwargs: object
) -> Iterator[checks.CheckMessage]:
    """Return the errors tasks.E301: a queue is spread over a database that is no longer configured."""
    if home() not in (databases or []):
        return
    try:
        queues = spread()
    except (OperationalError, ProgrammingError):
        # The check may run before the migrations.
        return
    for queue in queues:
        if found := problem(queue.databases):
            hint = "Give DATABASES its name back: tasks are in it."
            yield checks.Error(f"Queue {queue.name}: databases: {found}.", hint=hint, id="tasks.E301")


def problem(databases: object) -> str:
    """Return one line on what is wrong with a list of databases; empty if nothing is."""
    if not isinstance(databases, list) or not all(isinstance(alias, str) for alias in databases):
        return 'must be a list of names from DATABASES, such as ["default", "second"]'
    if unknown := [alias for alias in databases if alias not in connections]:
        return f"{unknown[0]!r} is not in DATABASES; choose from {', '.join(connections)}"
    if twice := [alias for alias in databases if databases.count(alias) > 1]:
        return f"{twice[0]!r} is named twice"
    return ""


def check_change(queue: QueueRow, before: list[str] | None) -> None:
    """Refuse a change of databases that cannot work or that existing tasks forbid; ``before``: None for a new queue."""
    if found := problem(queue.databases):
        raise ValidationError({"databases": found})
    old = [] if before is None else before or [home()]
    new = queue.databases or [home()]
    if old == new or not (before or queue.databases):
        return
    try:
        told = _refused(queue, old, new)
    except (DatabaseError, InterfaceError) as error:
        told = f"a database cannot be used: {one_line(error)}"
    if told:
        raise ValidationError({"databases": told})


def _refused(queue: QueueRow, old: list[str], new: list[str]) -> str:
    for alias in sorted({*old, *new}):
        if (alias in old) != (alias in new) and tasks_in(queue, alias).exists():
            way = "comes to" if alias in new else "leaves"
            return f"{alias!r} has tasks of a queue {queue.name}; a database {way} a queue without any"
    bound = Q() if queue.exclusive else Q(key__isnull=False)
    if any(tasks_in(queue, alias).filter(bound).exists() for alias in old):
        return "keys, or exclusive values, of tasks that are there have decided their databases; make another queue"
    return ""


def tasks_in(queue: QueueRow, alias: str) -> Any:
    """Return the tasks of a queue in one database."""
    return task_model()._default_manager.using(alias).filter(queue__name=queue.name)


# Copies


def copy_in(queue: QueueT, alias: str) -> QueueT:
    """Return the current copy of a queue in a database, with that database's time."""
    rows = queue_rows(alias).filter(name=queue.name)
    if found := rows.annotate(read_at=Now()).first():
        return found
    raise ShardUnavailable(f"queue {queue.name} has no copy in database {alias!r}; {REMEDY}")


def difference(queue: QueueRow, alias: str) -> dict[str, Any] | None:
    """Return the values of a queue in which its copy differs; None if there is no copy."""
    rows = queue_rows(alias)
    there = rows.filter(name=queue.name).first()
    if there is None:
        return None
    return {name: value for name, value in _values(queue).items() if getattr(there, name) != value}


def spread() -> list[Any]:
    """Return the queues that are in several databases, by name."""
    rows = queue_rows(home())
    return list(rows.exclude(databases=[]).order_by("name"))


def mirror(name: str, beside: Iterable[str] = ()) -> dict[str, str]:
    """Make the copies of a queue equal to it; return what was done, or what went wrong, by database.

    ``beside``: databases that the queue was in before. A database that does not answer does not stop the other
    databases: workers repair its copy at their next scheduling pass.
    """
    using, done = home(), {}
    with transaction.atomic(using=using):
        rows = queue_rows(using).filter(name=name)
        # One caller at a time, so that the later of two changes is copied last.
        locked = rows.select_for_update(no_key=connections[using].features.has_select_for_no_key_update)
        for queue in locked:
            for alias in dict.fromkeys([*queue.databases, *beside]):
                if alias == using or alias not in connections:
                    continue
                try:
                    done[alias] = _copy(queue, alias)
                except (DatabaseError, InterfaceError, TaskError) as error:
                    logger.error(
                        "tasks.copy_failed", extra={"queue": name, "database": alias, "error": one_line(error)}
                    )
                    done[alias] = f"failed: {one_line(error)}"
    return {alias: what for alias, what in done.items() if what}


def mirror_all() -> dict[str, dict[str, str]]:
    """Run :func:`mirror` for every queue whose copies differ; return the results by queue name."""
    return {queue.name: mirror(queue.name) for queue in spread() if _is_behind(queue)}


def _is_behind(queue: QueueRow) -> bool:
    """Return whether a copy differs, in databases that answer. It may take long, so it comes before the lock."""
    behind = False
    for alias in awake([alias for alias in queue.databases if alias in connections and alias != home()]):
        try:
            behind = difference(queue, alias) != {} or behind
        except (DatabaseError, InterfaceError) as error:
            rest(alias, error)
    return behind


def _copy(queue: QueueRow, alias: str) -> str:
    with transaction.atomic(using=alias):
        rows = queue_rows(alias)
        different = difference(queue, alias)
        if different is None:
            rows.bulk_create([rows.model(**_values(queue))])
        elif different:
            rows.filter(name=queue.name).update(**different)
        else:
            return ""
        number_from(copy_in(queue, alias))
    return "made" if different is None else f"repaired: {', '.join(sorted(different))}"


# Databases that do not answer


def rest(alias: str, error: Exception) -> None:
    """Do not ask a database that did not answer for ``REST`` seconds."""
    _resting[alias] = time.monotonic() + REST
    logger.warning("tasks.shard_unavailable", extra={"database": alias, "error": one_line(error)})


def awake(databases: list[str]) -> list[str]:
    """Return the databases that may be asked now; all of them if none would remain."""
    now = time.monotonic()
    return [alias for alias in databases if _resting.get(alias, now) <= now] or databases


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _values(queue: QueueRow) -> dict[str, Any]:
    """Return the columns of a queue, without its number, which each database gives anew."""
    columns = [field.attname for field in queue_rows().model._meta.concrete_fields if not field.primary_key]
    return {name: getattr(queue, name) for name in columns}
