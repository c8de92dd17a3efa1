"""Queues that are split over several databases: which of them a task goes to, and which are asked for tasks."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any

from django.db import InterfaceError, OperationalError, transaction

from tasks.copies import awake, copy_in, one_line, rest, tasks_in
from tasks.exceptions import PublishRefused, ShardUnavailable
from tasks.messages import Message, exclusive_value
from tasks.numbering import home

# Publishing


def publish(
    queue: Any, messages: Sequence[Message], write: Callable[[Any, list[Message]], list[Any]], *, update: bool
) -> list[Any]:
    """What ``write(copy, messages)`` returns for each message, in order, written into the databases that they go to.

    In one transaction for each database, which are committed one after the other once all is written.
    """
    results: list[Any] = [None] * len(messages)
    with ExitStack() as stack:
        by_alias: dict[str, list[int]] = defaultdict(list)
        for number, alias in enumerate(_destinations(queue, messages, stack, update=update)):
            by_alias[alias].append(number)
        for alias, numbers in sorted(by_alias.items()):
            with _reached(queue, alias):
                if len(by_alias) > 1:
                    stack.enter_context(transaction.atomic(using=alias))
                written = write(copy_in(queue, alias), [messages[number] for number in numbers])
            for number, result in zip(numbers, written, strict=True):
                results[number] = result
    return results


def any_copy(queue: Any) -> Any:
    """The queue in one of its databases, for a task that may be in any."""
    alias = random.choice(awake(queue.databases))
    with _reached(queue, alias):
        return copy_in(queue, alias)


def _destinations(queue: Any, messages: Sequence[Message], stack: ExitStack, *, update: bool) -> list[str]:
    """The database of each message: by its exclusive value, else by its key, else each in turn."""
    if queue.exclusive:
        return _of_values(queue, messages, stack, update=update)
    free, turn = awake(queue.databases), random.randrange(len(queue.databases))
    return [
        free[(turn + number) % len(free)] if message.key is None else _chosen(queue, message.key)
        for number, message in enumerate(messages)
    ]


def _of_values(queue: Any, messages: Sequence[Message], stack: ExitStack, *, update: bool) -> list[str]:
    """By exclusive values; but a key that is there already, under whatever value, stays where it is.

    Publishers with keys wait for each other: of two with one key and different values, the second has to see what the
    first wrote into another database.
    """
    wanted = [_chosen(queue, exclusive_value(queue.exclusive_key, message.metadata)) for message in messages]
    keys = {message.key for message in messages if message.key is not None}
    if not keys:
        return wanted
    # Entered before all others, and so committed after them.
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


def _chosen(queue: Any, text: str) -> str:
    digest = sha256(text.encode()).digest()
    return str(queue.databases[int.from_bytes(digest[:8], "big") % len(queue.databases)])


# Claiming


def gather(queue: Any, limit: int, take: Callable[[Any, int], list[Any]]) -> list[Any]:
    """What ``take(copy, room)`` gives from one database after the other, each time in another order, up to ``limit``.

    One that is away is passed over; :class:`~tasks.exceptions.ShardUnavailable` when all are.
    """
    known, line, asked = queue.databases, _shuffled(queue.databases), set()
    found: list[Any] = []
    failed, answered = None, False
    while line and len(found) < limit:
        asked.add(alias := line.pop())
        try:
            copy = copy_in(queue, alias)
            if (now := copy.databases or [home()]) != known:
                # Whoever holds a queue for long hears here of databases that have come, or gone, since.
                known = now
                line = [other for other in _shuffled(known) if other not in asked]
            found += take(copy, limit - len(found))
            answered = True
        except (OperationalError, InterfaceError, ShardUnavailable) as error:
            failed = _refusal(queue, alias, error)
    if failed and not answered:
        raise failed
    return found


def is_held(queue: Any, worker: str) -> bool:
    """Whether a worker holds a task of a queue, in any of its databases."""
    if not queue.databases:
        rows = queue.tasks.model.objects.using(queue._state.db)
        return bool(rows.held_by(worker).filter(queue=queue).exists())
    return any(tasks_in(queue, alias).held_by(worker).exists() for alias in queue.databases)


@contextmanager
def alone(queue: Any) -> Iterator[None]:
    """Meanwhile nobody else claims from a queue of which a worker holds one task, in whatever database."""
    if not (queue.databases and queue.one_per_worker):
        yield
        return
    with transaction.atomic(using=home()):
        copy_in(queue, home()).lock()
        yield


def copies(queue: Any) -> list[Any]:
    """The queue in each of its databases."""
    found = []
    for alias in queue.databases:
        with _reached(queue, alias):
            found.append(copy_in(queue, alias))
    return found


# Databases that are away


@contextmanager
def _reached(queue: Any, alias: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise _refusal(queue, alias, error) from error


def _refusal(queue: Any, alias: str, error: Exception) -> ShardUnavailable:
    rest(alias, error)
    if isinstance(error, ShardUnavailable):
        return error
    return ShardUnavailable(f"database {alias!r} of queue {queue.name} cannot be used: {one_line(error)}")


def _shuffled(databases: list[str]) -> list[str]:
    return random.sample(asked := awake(databases), len(asked))
