"""Exceptions that users of the framework raise or catch. The docstring of each says what happened."""

import asyncio

# The errors that project code may raise when it fails; not KeyboardInterrupt, which may come from a person.
PROJECT_ERRORS = (Exception, asyncio.CancelledError, GeneratorExit, SystemExit)

# What an ``except`` takes.
Errors = type[BaseException] | tuple[type[BaseException], ...]

# A future refuses the first, takes the second for its own cancellation, and with the third closes its awaiting code.
UNFIT_FOR_FUTURES = (StopIteration, asyncio.CancelledError, GeneratorExit)


def passable(error: BaseException) -> BaseException:
    """Return the error, or a ``RuntimeError`` caused by it if a thread or an event loop would not just pass it on."""
    if isinstance(error, (Exception, NotBegun, TryAgainLater)) and not isinstance(error, StopIteration):
        return error
    passed = RuntimeError(": ".join([f"{type(error).__name__} was raised", *map(str, error.args)]))
    passed.__cause__ = error
    return passed


class StatorError(Exception):
    """The base of all errors of Stator."""


class GraphError(StatorError, ValueError):
    """A state graph is declared wrongly; the message names the graph, the state and the remedy."""


class InvalidTransition(StatorError):
    """A handler returned something that is not a declared transition from its state."""


class AttemptTimedOut(StatorError):
    """An attempt ran longer than the ``max_runtime`` of its state and was ended."""


class LeaseLost(StatorError):
    """The claim on this object has ended, so the attempt that held it may write nothing more."""


class ProtectedColumn(StatorError, ValueError):
    """A column that belongs to the framework was written directly instead of by a transition."""


class ProtectedState(StatorError, ValueError):
    """Somebody tried to move an object by hand to a state that only the framework enters."""


class EventRefused(StatorError, ValueError):
    """An event was not taken: the object does not wait for it, the sender may not send it, or its payload is wrong."""


class StepRefused(StatorError, ValueError):
    """A step cannot be recorded: its name, its place or its result is wrong; nothing was recorded."""


class Fail(StatorError):
    """The attempt can never succeed: take the ``fails_to`` edge now instead of trying again."""


class NotBegun(BaseException):
    """The attempt failed before its handler was called: the object is released, and the attempt is not counted.

    Raised by the framework; derives from ``BaseException`` like :class:`TryAgainLater`. The next attempt is in
    ``after`` seconds. ``reason`` is stored with the object.
    """

    def __init__(self, after: float, reason: str) -> None:
        super().__init__(reason)
        self.after = after
        self.reason = reason


class TryAgainLater(BaseException):
    """Not yet, and not an error: try again after ``after`` seconds, or after the state's ``try_interval``.

    Derives from ``BaseException`` so that ``except Exception`` in a handler lets it through. ``reason`` is stored with
    the object and shown to operators.
    """

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        super().__init__(reason)
        if after is not None and (isinstance(after, bool) or not isinstance(after, int | float) or after != after):
            raise TypeError(f"TryAgainLater: after={after!r} must be a number of seconds or None")
        if after is not None and after < 0:
            raise ValueError(f"TryAgainLater: after={after!r} is in the past; use 0 to try again at once")
        self.after = after
        self.reason = reason
