"""Queues over several databases: which database a task goes to, and which are asked for tasks."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import TypeVar

from django.db import InterfaceError, OperationalError, transaction

from tasks.exceptions import PublishRefused, ShardUnavailable
from tasks.messages import Message, exclusive_value
from tasks.rows.queues import QueueRow, home
from tasks.sharding.replicas import QueueT, awake, copy_in, one_line, rest, tasks_in

Result = TypeVar("Result")

# Publishing


def publish(
    queue: QueueT, messages: Sequence[Message], write: Callable[[QueueT, list[Message]], list[Result]], *, update: bool
) -> list[Result]:
    """Call ``write(copy, messages)`` for each database concerned; return its results for all messages, in order.

    With several databases, each has a transaction of its own. They are committed one after the other once all is
    written.
    """
    results: dict[int, Result] = {}
    with ExitStack() as stack:
        by_alias: dict[str, list[int]] = defaultdict(list)
        for number, alias in enumerate(_destinations(queue, messages, stack, update=update)):
            by_alias[alias].append(number)
        for alias, numbers in sorted(by_alias.items()):
            with _reached(queue, alias):
                if len(by_alias) > 1:
                    stack.enter_context(transaction.atomic(using=alias))
                written = write(copy_in(queue, alias), [messages[number] for number in numbers])
            results.update(zip(numbers, written, strict=True))
    return [results[number] for number in range(len(messages))]


def any_copy(queue: QueueT) -> QueueT:
    """Return the queue in a random one of its databases, for a task that may be in any."""
    alias = random.choice(awake(queue.databases))
    with _reached(queue, alias):
        return copy_in(queue, alias)


def _destinations(queue: QueueRow, messages: Sequence[Message], stack: ExitStack, *, update: bool) -> list[str]:
    """Return the database of each message: by its exclusive value, else by its key, else in turn."""
    if queue.exclusive:
        return _of_values(queue, messages, stack, update=update)
    free, turn = awake(queue.databases), random.randrange(len(queue.databases))
    return [
        free[(turn + number) % len(free)] if message.key is None else _chosen(queue, message.key)
        for number, message in enumerate(messages)
    ]


def _of_values(queue: QueueRow, messages: Sequence[Message], stack: ExitStack, *, update: bool) -> list[str]:
    """Return databases by exclusive value; but a key that exists already, under any value, stays where it is.

    Publishers with keys wait for each other. If two publish the same key with different values, the second must see
    what the first wrote into another database.
    """
    wanted = [_chosen(queue, exclusive_value(queue.exclusive_key, message.metadata)) for message in messages]
    keys = {message.key for message in messages if message.key is not None}
    if not keys:
        return wanted
    # This transaction is entered first, and therefore committed last.
    with _reached(queue, home()):
        stack.enter_context(transaction.atomic(using=home()))
        copy_in(queue, home()).lock()
    there: dict[str, str] = {}
    for alias in queue.databases:
        with _reached(queue, alias):
            there |= dict.fromkeys(tasks_in(queue, alias).filter(key__in=keys).values_list("key", flat=True), alias)
    if update:
        for message, alias in zip(messages, wanted, strict=True):
            if there.get(message.key or "", alias) != alias:
                raise PublishRefused(
                    f"key={message.key!r} has a task of another {queue.exclusive_key}, in another database, which "
                    "cannot be updated to this one; cancel it and publish another key"
                )
    return [
        alias if message.key is None else there.setdefault(message.key, alias)
        for message, alias in zip(messages, wanted, strict=True)
    ]


def _chosen(queue: QueueRow, text: str) -> str:
    digest = sha256(text.encode()).digest()
    return str(queue.databases[int.from_bytes(digest[:8], "big") % len(queue.databases)])


# Claiming


def gather(queue: QueueT, limit: int, take: Callable[[QueueT, int], list[Result]]) -> list[Result]:
    """Call ``take(copy, room)`` for one database after the other, in random order; return up to ``limit`` results.

    A database that does not answer is skipped; :class:`~tasks.exceptions.ShardUnavailable` if none answers.
    """
    known, line, asked = queue.databases, _shuffled(queue.databases), set()
    found: list[Result] = []
    failed, answered = None, False
    while line and len(found) < limit:
        asked.add(alias := line.pop())
        try:
            copy = copy_in(queue, alias)
            if (now := copy.databases or [home()]) != known:
                # The caller's queue may be old: databases may have been added or removed since.
                known = now
                line = [other for other in _shuffled(known) if other not in asked]
            found += take(copy, limit - len(found))
            answered = True
        except (OperationalError, InterfaceError, ShardUnavailable) as error:
            failed = _refusal(queue, alias, error)
    if failed and not answered:
        raise failed
    return found


def is_held(queue: QueueRow, worker: str) -> bool:
    """Return whether a worker holds a task of a queue, in any of its databases."""
    if not queue.databases:
        rows = queue.tasks.model.objects.using(queue._state.db)
        return bool(rows.held_by(worker).filter(queue=queue).exists())
    return any(tasks_in(queue, alias).held_by(worker).exists() for alias in queue.databases)


@contextmanager
def alone(queue: QueueRow) -> Iterator[None]:
    """Lock out other claims while a worker claims from a ``one_per_worker`` queue in several databases."""
    if not (queue.databases and queue.one_per_worker):
        yield
        return
    with transaction.atomic(using=home()):
        copy_in(queue, home()).lock()
        yield


def copies(queue: QueueT) -> list[QueueT]:
    """Return the queue in each of its databases, or itself if it has one; ``copy.tasks`` are the tasks there."""
    found = []
    for alias in queue.databases:
        with _reached(queue, alias):
            found.append(copy_in(queue, alias))
    return found or [queue]


# Databases that do not answer


@contextmanager
def _reached(queue: QueueRow, alias: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise _refusal(queue, alias, error) from error


def _refusal(queue: QueueRow, alias: str, error: Exception) -> ShardUnavailable:
    rest(alias, error)
    if isinstance(error, ShardUnavailable):
        return error
    return ShardUnavailable(f"database {alias!r} of queue {queue.name} cannot be used: {one_line(error)}")


def _shuffled(databases: list[str]) -> list[str]:
    return random.sample(asked := awake(databases), len(asked))
