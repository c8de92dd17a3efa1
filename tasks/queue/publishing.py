"""Publishing of tasks into a queue, each key once, with a few statements per 500 tasks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.db import DatabaseError, IntegrityError, transaction

from stator.claims import is_retryable, longest_lease
from stator.models import Now, created, make_due, remembered
from tasks.actions.registry import declared
from tasks.conf import load_settings
from tasks.exceptions import MoveRefused, PublishRefused, TaskError
from tasks.messages import CHANGEABLE, COLUMNS, Message, checked_message, exclusive_value, message_of
from tasks.queue import actions as queue_actions
from tasks.queue import inserts
from tasks.queue.inserts import BATCH, insert_by_rows
from tasks.queue.operator_actions import clear
from tasks.queue.parts import is_spread, place_of_task
from tasks.queue.task_parts import KIND
from tasks.rows.clock import Later
from tasks.rows.tables import task_model, task_rows
from tasks.rows.tasks import TERMINAL, TaskRow

if TYPE_CHECKING:
    # Its module imports this one; programs see what they get.
    from tasks.models import Queue, Task

# A try fails when another publisher has just published one of the same keys.
TRIES = 10

# The columns that a publication may update in a waiting task of the same key.
KEPT = {"key"}
KEPT |= {"worker_count"}  # tasks.extensions.shared
PARAMETERS = (*(name for name in COLUMNS if name not in KEPT), "exclusive_value", "elsewhere_only")

# Columns without an option of their own, each with the option that decides it.
DECIDED_BY = {"exclusive_value": "metadata", "elsewhere_only": "action"}


# Columns of new tasks that an extension gives; without any, the statement that publishes has no such column.
Columns = Mapping[str, object]
NO_COLUMNS: Columns = MappingProxyType({})

# Publishes messages into a queue: :func:`publish`, or what an extension does around it.
Publish = Callable[..., "list[Published]"]


class PublishOutcome(StrEnum):
    """The outcome of a publication: a new task, or the status of the existing one."""

    INSERTED = "inserted"
    MATCHED = "matched"
    RUNNING = "running"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Published:
    """A task and the outcome of its publication.

    ``inserted``: it is new. ``matched``: a task of this key exists and waits. ``running``: a worker holds it.
    ``duplicate``: it has ended.
    """

    task: "Task"
    outcome: PublishOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class OnExistingKey:
    """Options for keys that exist already.

    ``update``: write the given parameters into a waiting task, and move its start. ``clear_failed`` and
    ``clear_succeeded``: forget the workers that failed, or succeeded, so that they may run it again; a task that ended
    that way waits again.
    """

    update: bool = False
    clear_failed: bool = False
    clear_succeeded: bool = False

    @property
    def changes(self) -> bool:
        """Return whether existing tasks may be written to."""
        return self.update or self.clear_failed or self.clear_succeeded


def publish(
    queue: "Queue",
    given: Iterable[object],
    on_existing: OnExistingKey,
    *,
    known_only: bool = False,
    over_http: bool = False,
    admit: Callable[[int], None] = lambda rows: None,
    columns: Columns = NO_COLUMNS,
) -> list[Published]:
    """Publish messages, all or none, and return one result for each, in order.

    ``over_http``: the publisher is a program, which may do less than code here; see :mod:`tasks.queue.actions`.
    ``admit``: called with the number of rows after all other checks; it may refuse them.
    ``columns``: further columns of new tasks.
    """
    settings = load_settings()
    lease = longest_lease(task_model(), using=queue._state.db)
    messages = [message_of(each, settings, lease) for each in _bounded(given, settings.PUBLISH_LIMIT)]
    rows = sum(message.rows for message in messages)
    bound_rows(rows, settings.PUBLISH_LIMIT)
    tasks = None
    if rows == len(messages) and not on_existing.changes:
        tasks = _in_one_statement(queue, messages, known_only, over_http, admit, columns)
    if tasks:
        return [Published(task, PublishOutcome.INSERTED) for task in tasks]
    queue = queue.current()
    _refuse(queue, messages, known_only, over_http)
    if tasks is None:
        admit(rows)
    listed = frozenset(queue.http_actions) if over_http else None
    return _into(queue, messages, on_existing, listed, columns)


def _in_one_statement(
    queue: "Queue",
    messages: list[Message],
    known_only: bool,
    over_http: bool,
    admit: Callable[[int], None],
    columns: Columns,
) -> "list[Task] | None":
    """Publish tasks of new keys with one statement; return them, or nothing, or None if they were not admitted either.

    The queue is used as it was last read. If it refuses a task, nothing is published, since it must be read anew first.
    """
    queue = queue.__dict__.get("known", queue)
    if not messages or not queue.takes_at_once or _lets_keys_apart(queue, messages):
        return None
    listed = frozenset(queue.http_actions) if over_http else None
    try:
        _refuse(queue, messages, known_only, over_http)
        rows = [_values(queue, message, listed, columns) for message in messages]
    except TaskError:
        return None
    delays = [inserts.delay_of(message.invisible_for, queue.invisible_for) for message in messages]
    if any(delays):
        for row, delay in zip(rows, delays, strict=True):
            row["state_next_attempt"] = delay or None
    admit(len(rows))
    keys: list[str | None] = [message.key for message in messages if message.key is not None]
    if len(messages) > 1 and keys and _with_keys(queue, keys, lock=False):
        return []
    return inserts.publish(queue, rows, over_http=over_http)


def check(queue: "Queue", given: dict[str, object], *, over_http: bool) -> None:
    """Raise ``PublishRefused`` if a task could not be published now; publish nothing."""
    message = message_of(given, load_settings(), longest_lease(task_model(), using=queue._state.db))
    _refuse(queue, [message], known_only=False, over_http=over_http)
    _values(queue, message, None)


def bound_rows(rows: int, most: int) -> None:
    """Refuse more rows than one call may write."""
    if rows > most:
        raise PublishRefused(f"{rows:,} rows are too many for one call; the maximum is {most:,}{KIND.parts.in_rows}")


def _into(
    queue: "Queue",
    messages: list[Message],
    on_existing: OnExistingKey,
    listed: frozenset[str] | None,
    columns: Columns,
) -> list[Published]:
    """Publish into a queue as it is now. ``listed``: over HTTP, the actions that the queue lists; else None."""
    # Built first, so that a message without a value of the exclusive key is refused before anything is written.
    rows = [_row(queue, message, listed, columns) for message in messages]
    for attempt in range(1, TRIES + 1):
        try:
            with transaction.atomic(using=queue._state.db):
                if attempt > 1 or _lets_keys_apart(queue, messages):
                    # Those who try again take turns. Otherwise, with the same keys in other orders, they could end each
                    # other's transactions again and again.
                    queue.lock()
                return _publish(queue, rows, on_existing, over_http=listed is not None)
        except DatabaseError as error:
            if attempt == TRIES or not (isinstance(error, IntegrityError) or is_retryable(error)):
                raise
    raise AssertionError("the last try returns or raises")


def _lets_keys_apart(queue: "Queue", messages: list[Message]) -> bool:
    """Return whether equal keys may be in several parts of the table, where no constraint compares them."""
    return queue.exclusive and is_spread(queue) and any(message.key is not None for message in messages)


def _bounded(given: Iterable[object], most: int) -> list[dict[str, object]]:
    bounded = []
    for each in given:
        if not isinstance(each, dict):
            raise PublishRefused(
                f"each task must be a dictionary of the arguments of publish(), not {type(each).__name__}"
            )
        bounded.append(each)
    bound_tasks(len(bounded), most)
    return bounded


def bound_tasks(count: int, most: int) -> None:
    """Refuse more tasks than one call may publish."""
    if count > most:
        raise PublishRefused(f"{count:,} tasks are too many for one call; the maximum is {most:,}")


def _refuse(queue: "Queue", messages: list[Message], known_only: bool, over_http: bool) -> None:
    queue.refuse_tasks()
    names = [message.action for message in messages]
    if over_http:
        queue_actions.refuse_over_http(queue, names)
    if known_only or not queue.actions_elsewhere:
        queue_actions.refuse_unknown(queue, names)
    queue_actions.refuse_arguments(queue, messages)


def _row(queue: "Queue", message: Message, listed: frozenset[str] | None, columns: Columns) -> "Task":
    delay = inserts.delay_of(message.invisible_for, queue.invisible_for)
    row = queue.tasks.model(
        queue=queue,
        **_values(queue, message, listed, columns),
        # The database's time as a value: Django cannot insert rows with expressions as arrays.
        **(dict.fromkeys(_now_by_default(), queue.__dict__["read_at"]) if "read_at" in queue.__dict__ else {}),
        **({"state_ready": False, "state_next_attempt": Later(delay)} if delay else {}),
    )
    row.options = message.given
    row.given = [name for name in PARAMETERS if DECIDED_BY.get(name, name) in message.given]
    row.delay = delay if "invisible_for" in message.given else None
    return row


@cache
def _now_by_default() -> tuple[str, ...]:
    return tuple(each.name for each in task_model()._meta.concrete_fields if isinstance(each.db_default, Now))


def _values(
    queue: "Queue", message: Message, listed: frozenset[str] | None, columns: Columns = NO_COLUMNS
) -> dict[str, object]:
    """Return the values of a new task in this queue, without its times."""
    value = exclusive_value(queue.exclusive_key, message.metadata) if queue.exclusive else None
    return {
        **{name: getattr(message, name) for name in COLUMNS},
        "max_attempts": message.max_attempts or _declared_attempts(queue, message.action),
        "worker_ids": list(message.worker_ids),
        "exclusive_value": value,
        **place_of_task(queue, value, message.key),
        "elsewhere_only": listed is not None and message.action not in listed,
        "state": "pending",
        **({"state": "shared"} if message.worker_count > 1 else {}),  # tasks.extensions.shared
        **columns,
    }


def _declared_attempts(queue: "Queue", name: str) -> int | None:
    """Return the action's ``max_attempts`` if the queue has none. The task stores it, for every claimant."""
    action = declared(name, queue.name) if queue.max_attempts is None else None
    return action.max_attempts if action else None


def _publish(queue: "Queue", rows: "list[Task]", on_existing: OnExistingKey, *, over_http: bool) -> list[Published]:
    """Publish within a transaction; ``IntegrityError`` if another publisher was first with one of the keys."""
    using = queue._state.db
    there = _with_keys(queue, [row.key for row in rows if row.key is not None], lock=on_existing.changes)
    if over_http and on_existing.changes:
        queue_actions.refuse_to_change_over_http(queue, there.values())
    matched = _matched(queue, rows, there, on_existing)
    # If several messages have one key, only the first is published.
    first = {row.key: row for row in reversed(rows) if row.key is not None}
    new = [row for row in rows if row.key is None or (row.key not in there and first[row.key] is row)]
    insert_by_rows(new, str(using))
    KIND.parts.add(new, PARAMETERS)
    written = task_rows(using).in_bulk([row.pk for row in new])
    created(str(using), written.values())
    inserted = {id(row): written[row.pk] for row in new}
    by_key: dict[str | None, Task] = {row.key: inserted[id(row)] for row in new if row.key is not None}
    for task in (*there.values(), *written.values()):
        task.queue = queue
    return [
        Published(inserted[id(row)], PublishOutcome.INSERTED)
        if id(row) in inserted
        else matched.get(row.key) or Published(by_key[row.key], PublishOutcome.MATCHED)
        for row in rows
    ]


def _with_keys(queue: "Queue", keys: list[str | None], *, lock: bool) -> "dict[str | None, Task]":
    """Return the tasks with these keys and their parts; ``lock`` locks both, because they may be changed."""
    if not keys:
        return {}
    keyed = task_rows(queue._state.db).filter(queue=queue, key__in=keys).order_by("pk")
    if lock:
        KIND.parts.lock(keyed)
    return {task.key: task for task in KIND.parts.with_parts(keyed)}


def _matched(
    queue: "Queue", rows: "list[Task]", there: "dict[str | None, Task]", on_existing: OnExistingKey
) -> dict[str | None, Published]:
    """Return the outcomes for keys that exist already."""
    wanted = {row.key: row for row in reversed(rows) if row.key in there}
    if on_existing.clear_failed or on_existing.clear_succeeded:
        changed = [
            task
            for task in there.values()
            if clear(task, failed=on_existing.clear_failed, succeeded=on_existing.clear_succeeded)
        ]
        there |= _with_keys(queue, [task.key for task in changed], lock=False)
    outcomes = {key: _outcome(task) for key, task in there.items()}
    if on_existing.update:
        _update(queue, [(there[key], row) for key, row in wanted.items() if outcomes[key] == PublishOutcome.MATCHED])
    return {key: Published(there[key], outcome) for key, outcome in outcomes.items()}


def _outcome(task: TaskRow) -> PublishOutcome:
    if task.status == "running":
        return PublishOutcome.RUNNING
    return PublishOutcome.MATCHED if task.status in ("pending", "invisible") else PublishOutcome.DUPLICATE


def _update(queue: "Queue", pairs: "list[tuple[Task, Task]]") -> None:
    """Update waiting tasks and their parts with the parameters that were given."""
    changed = []
    for task, row in pairs:
        KIND.parts.resize(task, row, PARAMETERS)
        if row.shard != task.shard and row.exclusive_value != task.exclusive_value and "exclusive_value" in row.given:
            raise PublishRefused(
                f"task {task.pk} has {queue.exclusive_key}={task.exclusive_value}, which cannot become "
                f"{row.exclusive_value}, since the queue is spread by it; cancel the task and publish it anew"
            )
        if wrong := KIND.parts.too_few(row.worker_ids if "worker_ids" in row.given else [], task):
            raise PublishRefused(wrong)
        every = (task, *KIND.parts.of(task))
        with remembered(str(queue._state.db), every):
            for each in every:
                for name in row.given:
                    setattr(each, name, getattr(row, name))
                changed.append(each)
    names = sorted(set[str]().union(*(row.given for _, row in pairs)))
    if names:
        task_rows(queue._state.db).bulk_update(changed, names, batch_size=BATCH)
    _reschedule({task: row.delay for task, row in pairs if row.delay is not None}, str(queue._state.db))


def _reschedule(delays: "dict[Task, float]", using: str) -> None:
    """Let waiting tasks and their parts start after so many seconds."""
    tasks = list(delays)
    for start in range(0, len(tasks), BATCH):
        some = tasks[start : start + BATCH]
        for delay in {delays[task] for task in some}:
            meant = [task.pk for task in some if delays[task] == delay]
            own = task_rows(using).filter(pk__in=meant)
            make_due(own, delay)
            KIND.parts.make_due(using, meant, delay)
        written = task_rows(using).in_bulk([task.pk for task in some])
        for task in some:
            task.state_ready = written[task.pk].state_ready
            task.state_next_attempt = written[task.pk].state_next_attempt
            task.__dict__.pop("_prefetched_objects_cache", None)


def change(task: TaskRow, given: dict[str, object]) -> None:
    """Write these options into a task that has not ended, and into its parts; see ``Task.change``."""
    using = task._state.db
    if unknown := sorted(given.keys() - CHANGEABLE.keys()):
        raise TaskError(f"{unknown[0]!r} of a task cannot be changed; {', '.join(CHANGEABLE)} can be")
    message = checked_message({"action": "any", **given}, load_settings(), longest_lease(type(task), using=using))
    values = {name: getattr(message, name) for name in given}
    if "worker_ids" in values:
        values["worker_ids"] = list(message.worker_ids)
    rows = task_rows(using)
    with transaction.atomic(using=using):
        KIND.parts.lock(rows.filter(pk=task.pk))
        row = rows.filter(pk=task.pk).first()
        if row is None or row.state in TERMINAL:
            raise MoveRefused(
                f"task {task.pk} is {row.status if row else 'gone'}; only a task that has not ended can be changed"
            )
        KIND.parts.refuse(row, "change")
        if wrong := KIND.parts.too_few(values.get("worker_ids", []), row):
            raise TaskError(wrong)
        if values:
            rows.filter(KIND.parts.with_own(row.pk)).update(**values)
        with remembered(str(using), [task]):
            task.refresh_from_db(using)
