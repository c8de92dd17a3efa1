"""Errors that end attempts; errors of other processes are recorded under the names of their types there."""

from functools import lru_cache

from stator.exceptions import Fail, StatorError, TryAgainLater
from stator.graph.tracebacks import RemoteTraceback

# The most characters of an error on one line.
LINE = 300


class NoHandler(StatorError):
    """No action of this name is registered in this worker."""


class NotStorable(StatorError, ValueError):
    """A value cannot be stored as JSON."""


class OutOfAttempts(StatorError):
    """The task's last attempt ended without success."""


class Release(TryAgainLater):
    """An action gives its task up for another worker, which is no error: the task is due after its back-off.

    The attempt counts, and this worker has rejected the task.
    """

    outcome = "released"

    def __init__(self, reason: str = "") -> None:
        super().__init__(None, reason)


class Cancel(Fail):
    """An action cancels its task, which need not be done at all."""

    outcome = "canceled"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def final(error: BaseException) -> Fail:
    """Return an error that ends all retries; it is recorded under the name of the original error."""
    if isinstance(error, Fail):
        return error
    ended = Fail()
    ended.__cause__ = error
    return ended.with_traceback(error.__traceback__)


def remote(module: str, name: str, message: str, cause: RemoteTraceback, *, is_final: bool = False) -> Exception:
    """Return an error that another process raised, with the name of its type there."""
    error: Exception = _named(Fail if is_final else Exception, module, name)(message)
    error.__cause__ = cause
    return error


def last_line(text: str) -> str:
    """Return the last line of a text, up to 300 characters; the last line of a traceback is the error itself."""
    lines = text.strip().splitlines()
    return lines[-1][:LINE] if lines else ""


@lru_cache(maxsize=1000)
def _named(base: type[Exception], module: str, qualname: str) -> type[Exception]:
    return type(qualname.rpartition(".")[2], (base,), {"__module__": module, "__qualname__": qualname})


from tasks.extensions.isolation.unanswered import IsolationError  # noqa: E402, F401
