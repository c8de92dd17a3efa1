"""The option ``isolated`` of an action. Without this extension, its declaration is refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from tasks.actions.options import ActionOptions


class IsolatedOption(TypedDict, total=False):
    """The option as it is declared."""

    isolated: bool


@dataclass(frozen=True, kw_only=True)
class Isolated(ActionOptions):
    """Whether an action runs in a process of its own."""

    isolated: bool = False

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each option that cannot work."""
        if self.isolated not in (True, False):
            yield f"isolated={self.isolated!r} must be True or False"
        yield from super().problems()

    @cached_property
    def called_by(self) -> str:
        """The path of the function that calls it in such a process."""
        return "tasks.extensions.isolation.attempts.call" if self.isolated else super().called_by
