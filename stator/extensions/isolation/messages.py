"""The messages between a worker and its isolated processes, and the errors that are raised if no answer comes."""

from typing import TypedDict

from stator.exceptions import StatorError

# Seconds between messages about how far an attempt is.
SAY_EVERY = 1.0


class NotStarted(StatorError):
    """An isolated process could not be started or set up; it may be later."""


class ProcessFailed(StatorError):
    """An isolated process gave no answer. ``code`` is its exit code, negative for a signal."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Request(TypedDict):
    """The row to attempt: its model, the token of its claim, the id and name of its worker, and the surroundings."""

    model: str
    token: str
    worker: str
    using: str
    schema: str
    name: str
    language: str | None
    time_zone: str | int


class IsolatedAnswer(TypedDict, total=False):
    """What a process says: that it is ready, how long a lease was extended, how far an attempt is, or how it
    ended.

    ``reached``: the arguments of the latest call of ``progress()``.
    ``ended``: "recorded", "lost" or "not begun". ``moved``: the states that the object entered. ``failed`` and
    ``lost``: the numbers of errors and of lost leases.
    """

    ready: bool
    extended: float
    reached: list[object]
    ended: str
    moved: list[str]
    failed: int
    lost: int
