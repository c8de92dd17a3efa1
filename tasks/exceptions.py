"""What the queue refuses. Each message is one line that says what is wrong and the way out."""

from stator.exceptions import LeaseLost, StatorError

__all__ = [
    "ActionNotAllowed", "LeaseLost", "MoveRefused", "PublishRefused", "QueuePaused", "ShardUnavailable", "TaskError",
    "UnknownAction",
]  # fmt: skip


class TaskError(StatorError, ValueError):
    """The queue refuses what it was asked."""


class PublishRefused(TaskError):
    """This cannot be published; nothing was."""


class QueuePaused(PublishRefused):
    """The queue takes no tasks at present."""


class UnknownAction(PublishRefused):
    """No code is registered under the name of the action."""


class ActionNotAllowed(PublishRefused):
    """The queue does not take this action over HTTP."""


class MoveRefused(TaskError):
    """A task in this status does not go there."""


class ShardUnavailable(TaskError):
    """One of the databases that a queue is split over cannot be used at present."""
