"""Rules on the actions of a queue: Python publishes actions that its code has; HTTP, only actions the queue lists.

A program with a token may publish the actions in the queue's ``http_actions``. If external programs serve the queue, it
may also publish names that this code does not have. Such a task stays reserved for external programs, even if this code
later gets an action with that name.
"""

from collections.abc import Iterable

from stator.texts import listed, nearest
from tasks.actions.registry import NAME, declared, find, registry
from tasks.conf import DJANGO
from tasks.exceptions import ActionNotAllowed, PublishRefused, UnknownAction
from tasks.failures import NoHandler
from tasks.messages import Message
from tasks.rows.queues import QueueRow
from tasks.rows.tasks import TaskRow

MAX_LISTED, MAX_NAMED = 1000, 5


def problem(names: object) -> str:
    """Return what is wrong with a list of actions, as one sentence; empty if it is valid."""
    if not isinstance(names, list) or len(names) > MAX_LISTED:
        return f'must be a list of at most {MAX_LISTED} names of actions, such as ["resize"]'
    for name in names:
        if isinstance(name, str) and name.startswith(DJANGO):
            return f"{name!r:.80} is a task of Django's framework, which HTTP cannot publish; list a @tasks.action"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return f"{name!r:.80} is not the name of an action; use letters, digits, '_', '-' and '.'"
        if names.count(name) > 1:
            return f"{name!r} is listed twice; list it once"
    return ""


def refuse_unknown(queue: QueueRow, names: Iterable[str]) -> None:
    """Raise ``UnknownAction`` for the first of these names that this code does not register for the queue."""
    for name in dict.fromkeys(names):
        try:
            find(name, queue.name)
        except NoHandler:
            raise UnknownAction(
                f"no action {name!r} is registered for queue {queue.name}; {_remedy(name, queue.name)}; "
                "if programs elsewhere run it, set actions_elsewhere=True on the queue"
            ) from None


def refuse_arguments(queue: QueueRow, messages: Iterable[Message]) -> None:
    """Raise ``PublishRefused`` for the first task with data that its action in this code does not take.

    Not if programs elsewhere serve the queue, because their action of that name may take it.
    """
    asked = set()
    for message in () if queue.actions_elsewhere else messages:
        data = message.data
        # The names decide, so that each kind of task is looked at once.
        kind = message.action, tuple(data) if isinstance(data, dict) else data is None
        if kind not in asked and (action := declared(message.action, queue.name)) and (why := action.refuses(data)):
            raise PublishRefused(f"action {message.action!r} cannot be called with this data: {why}")
        asked.add(kind)


def refuse_over_http(queue: QueueRow, names: Iterable[str]) -> None:
    """Raise for the first of these names that a program may not publish into the queue over HTTP.

    ``ActionNotAllowed`` for an action that this code has, else ``UnknownAction``. Suggestions come only from the list,
    because programs must not learn which other actions the code has.
    """
    for name in dict.fromkeys(names):
        if may_be_published_over_http(queue, name):
            continue
        remedy = nearest(name, queue.http_actions, "list it in http_actions of the queue")
        if declared(name, queue.name) is not None:
            raise ActionNotAllowed(f"queue {queue.name} does not accept action {name!r} over HTTP; {remedy}")
        raise UnknownAction(
            f"queue {queue.name} has no action {name!r}; {remedy}; "
            "if programs elsewhere run it, set actions_elsewhere=True on the queue"
        )


def may_be_published_over_http(queue: QueueRow, name: str) -> bool:
    """Return whether the queue lists the action, or external programs serve it and this code lacks the action."""
    return name in queue.http_actions or (queue.actions_elsewhere and declared(name, queue.name) is None)


def refuse_to_change_over_http(queue: QueueRow, tasks: Iterable[TaskRow]) -> None:
    """Raise ``ActionNotAllowed`` for the first task that a program may not change or requeue over HTTP."""
    for task in tasks:
        if not (task.elsewhere_only or may_be_published_over_http(queue, task.action)):
            raise ActionNotAllowed(
                f"task {task.pk} has action {task.action!r}, which queue {queue.name} does not accept over HTTP; "
                "list it in http_actions of the queue"
            )


def _remedy(name: str, queue: str) -> str:
    others, otherwise = sorted(registry.get(name, {})), "register it with @tasks.action"
    if others:
        otherwise = f"it is registered for other queues: {listed(others, MAX_NAMED)}"
    return nearest(name, known_actions(queue), otherwise)


def known_actions(queue: str) -> frozenset[str]:
    """Return the actions that this code has for a queue, without tasks of Django's framework."""
    return frozenset(name for name, by_queue in registry.items() if queue in by_queue or "" in by_queue)
