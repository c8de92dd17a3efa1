"""Failures as they are stored: bounded text without local variables, NULs or credentials, and a fingerprint."""

import hashlib
from dataclasses import dataclass, field

from stator.exceptions import Fail
from stator.graph.tracebacks import MESSAGE_LENGTH, RemoteTraceback, formatted
from stator.texts import bounded, text_of

__all__ = ["MESSAGE_LENGTH", "TRACEBACK_LENGTH", "Failure", "bounded", "describe", "quarantined", "text_of"]

TRACEBACK_LENGTH = 8000

# How many causes of an error, and errors of a group, are logged with it.
MAX_CAUSES, MAX_GROUPED = 5, 20


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is stored. ``fingerprint`` is equal for errors of one type raised at one place.

    ``deliberate``: the handler raised ``Fail``, so the object is not attempted again. ``error``: the exception itself;
    it is not stored.
    """

    kind: str
    message: str
    traceback: str
    fingerprint: str
    deliberate: bool = False
    error: BaseException | None = field(default=None, compare=False, repr=False)
    _copies: list[Exception | None] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def loggable(self) -> BaseException | None:
        """The exception to log, or a copy with the same name where messages need masking or a cut.

        Each call returns the same object, so that collectors of errors count it once.
        """
        if self.error is None or _is_harmless(self.error):
            return self.error
        if not self._copies:
            self._copies.append(_stand_in(self.error, MAX_CAUSES))
        return self._copies[0]


def describe(error: BaseException) -> Failure:
    """Return the failure for an exception; never raises, even if its ``__str__`` does."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    message = bounded(text_of(error), MESSAGE_LENGTH)
    text, places = _traceback_and_places(error, kind, message)
    return Failure(
        kind=bounded(kind, 200),
        message=message,
        traceback=bounded(text, TRACEBACK_LENGTH),
        fingerprint=hashlib.sha256("\n".join([kind, *places]).encode(errors="replace")).hexdigest()[:16],
        deliberate=isinstance(error, Fail),
        error=error,
    )


# The type of the error of an attempt for which its worker ended itself.
HUNG = "stator.Hung"
# Precedes the place in its message.
HUNG_AT = "the attempt hung at "


def hung(message: str, stack: str, place: str) -> Failure:
    """Return the failure of an attempt that never returned, so that its worker ended itself."""
    return Failure(HUNG, message, stack, hashlib.sha256(f"{HUNG}\n{place}".encode(errors="replace")).hexdigest()[:16])


def quarantined(crashes: int, last: str = "", stack: str = "") -> Failure:
    """Return the failure of an object in quarantine: ``crashes`` of its leases ran out in a row.

    ``last``: what is known of the last attempt, with its stack.
    """
    message = (
        f"{crashes} leases in a row ran out during an attempt; the object is not attempted until an operator retries it"
    )
    return Failure("stator.Quarantined", f"{message}; {last}" if last else message, stack, "quarantined")


def lease_lost() -> Failure:
    """Return the failure of an attempt whose worker did not renew its lease."""
    message = "the worker died, hangs or was cut off during the attempt; what the attempt did so far is not known"
    return Failure("stator.LeaseLost", message, "", "lease_lost")


def _traceback_and_places(error: BaseException, kind: str, message: str) -> tuple[str, list[str]]:
    """Return an error's traceback, and the places that distinguish it from other errors of its type."""
    if isinstance(error.__cause__, RemoteTraceback):
        return error.__cause__.text, [error.__cause__.fingerprint]
    try:
        return formatted(error)
    except BaseException:  # noqa: BLE001 - properties of an error may raise anything; the outcome must still be recorded
        return f"{kind}: {message}\n", []


def _is_harmless(error: BaseException) -> bool:
    """Return whether all messages of an error and its causes may be logged unchanged."""
    waiting: list[BaseException] = [error]
    visited: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        texts = [text_of(each), *map(text_of, getattr(each, "__notes__", ()))]
        if len(visited) + len(waiting) > MAX_GROUPED or any(text != bounded(text, TRACEBACK_LENGTH) for text in texts):
            return False
        waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return True


def _stand_in(error: BaseException | None, depth: int) -> Exception | None:
    """Return an exception of the same name and traceback with harmless messages."""
    if error is None or not depth:
        return None
    kind, message = type(error), bounded(text_of(error), TRACEBACK_LENGTH)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if isinstance(error, BaseExceptionGroup):
        grouped = [_stand_in(each, depth - 1) or Exception(type(each).__name__) for each in error.exceptions]
        made: Exception = type(kind.__name__, (ExceptionGroup,), names)(
            bounded(text_of(error.message), MESSAGE_LENGTH), grouped[:MAX_GROUPED]
        )
    else:
        made = type(kind.__name__, (Exception,), names)(message)
    for note in getattr(error, "__notes__", ()):
        made.add_note(bounded(text_of(note), MESSAGE_LENGTH))
    made.__cause__ = _stand_in(error.__cause__, depth - 1)
    made.__context__ = None if error.__cause__ is error.__context__ else _stand_in(error.__context__, depth - 1)
    made.__suppress_context__ = error.__suppress_context__
    return made.with_traceback(error.__traceback__)
