"""Exceptions of queues. Each message is one line that says what is wrong and what to do."""

from stator.exceptions import LeaseLost, StatorError

__all__ = [
    "ActionNotAllowed", "LeaseLost", "MoveRefused", "PublishRefused", "QueuePaused", "TaskError", "TooManyWaiting",
    "UnknownAction",
]  # fmt: skip


class TaskError(StatorError, ValueError):
    """The queue refused an operation."""


class PublishRefused(TaskError):
    """The task cannot be published; nothing was published."""


class QueuePaused(PublishRefused):
    """Publishing to the queue is paused."""


class UnknownAction(PublishRefused):
    """No code is registered under the name of the action."""


class ActionNotAllowed(PublishRefused):
    """The queue does not take this action over HTTP."""


class MoveRefused(TaskError):
    """The task's status does not allow this move."""


class TooManyWaiting(TaskError):
    """The most claims that may wait in this process are waiting already; nothing was claimed."""
