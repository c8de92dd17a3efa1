"""Errors that end attempts, as they are to be recorded: under the name that they have where they come from."""

from functools import lru_cache
from typing import Any

from stator.exceptions import Fail, NotBegun, StatorError
from stator.tracebacks import RemoteTraceback

# Of an error where one line has to do.
LINE = 300


class NoHandler(StatorError):
    """No action of this name is registered in this worker."""


class NotStorable(StatorError, ValueError):
    """A value cannot be kept as JSON."""


class OutOfAttempts(StatorError):
    """The last attempt that the task had ended without success."""


class IsolationError(StatorError):
    """The process of an isolated action ended without an answer."""


class Throttled(NotBegun):
    """The rate or the concurrency of the action is used up: this was no attempt."""


def final(error: BaseException) -> Fail:
    """Return the error as one after which nothing is tried again; it is recorded as the error itself would be."""
    if isinstance(error, Fail):
        return error
    ended = Fail()
    ended.__cause__ = error
    return ended.with_traceback(error.__traceback__)


def remote(module: str, name: str, message: str, told: RemoteTraceback, *, is_final: bool = False) -> Exception:
    """Return the error that another process has raised; it has the name that it has there."""
    error: Exception = _named(Fail if is_final else Exception, module, name)(message)
    error.__cause__ = told
    return error


def last_line(text: str) -> str:
    """Of a traceback what it comes to; of anything else its beginning."""
    lines = text.strip().splitlines()
    return lines[-1][:LINE] if lines else ""


@lru_cache(maxsize=1000)
def _named(base: type[Exception], module: str, qualname: str) -> Any:
    return type(qualname.rpartition(".")[2], (base,), {"__module__": module, "__qualname__": qualname})
