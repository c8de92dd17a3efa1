"""What options of actions are made of: the class that has the options of an extension derives from this one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

# The upper bound of attempts, concurrency and local retries; a queue has the same bound of attempts.
MAX_TRIES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ActionOptions:
    """Options of an action: what cannot work in them, and where its function is called."""

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each option that cannot work."""
        yield from ()

    @cached_property
    def called_by(self) -> str:
        """The path of the coroutine function that calls it in place of the worker itself, "" if none does.

        It gets the attempt, and returns the value.
        """
        return ""

    @cached_property
    def admitted_by(self) -> str:
        """The path of what is asked before an attempt whether it may begin, "" if nothing is.

        Its ``admit(action, task, token)`` returns 0.0 if it may, else the seconds after which to ask again, and why;
        ``leave``, with the same arguments, takes note that the attempt has ended.
        """
        return ""

    @cached_property
    def leaves(self) -> bool:
        """Whether that is told of the end of an attempt, too."""
        return False


def number_problem(option: str, value: object, least: int = 1) -> Iterator[str]:
    """Yield one sentence if an option is no whole number in its bounds; None stands for no number."""
    if value is None:
        return
    if type(value) is not int or value < least:
        yield f"{option}={value!r} must be a whole number of at least {least}"
    elif value > MAX_TRIES:
        yield f"{option}={value!r} must be at most {MAX_TRIES}"
