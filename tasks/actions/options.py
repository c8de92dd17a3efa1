"""What options of actions are made of: the class that has the options of an extension derives from this one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


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
