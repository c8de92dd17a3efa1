"""The options of an action that limit its attempts over all workers. Without this extension, they are refused."""

from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from stator.exceptions import PROJECT_ERRORS, passable
from tasks.actions.options import ActionOptions, number_problem
from tasks.extensions.throttles.frequency import Frequency, frequency, key_text

if TYPE_CHECKING:
    from tasks.models import Task


class LimitOptions(TypedDict, total=False):
    """The options as they are declared."""

    rate: str
    concurrency: int | None
    key: "str | Callable[[Task], object] | None"


@dataclass(frozen=True, kw_only=True)
class Limits(ActionOptions):
    """How many attempts of an action start in a time, and how many run at once."""

    rate: str = ""
    concurrency: int | None = None

    @property
    def frequency(self) -> Frequency | None:
        """The parsed rate; None if there is none."""
        return frequency(self.rate) if self.rate else None

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each option that cannot work."""
        yield from number_problem("concurrency", self.concurrency)
        yield from super().problems()
        try:
            _ = self.frequency
        except ValueError as error:
            yield str(error)

    @cached_property
    def admitted_by(self) -> str:
        """The path of what admits its attempts."""
        return "tasks.extensions.throttles.models.ActionSlot" if self.rate or self.concurrency else super().admitted_by

    @cached_property
    def leaves(self) -> bool:
        """Whether the end of an attempt gives its slot to another one."""
        return bool(self.concurrency)


@dataclass(frozen=True, kw_only=True)
class Throttled(Limits):
    """An action whose tasks count together for the limits if they have the same value of a key."""

    key: "str | Callable[[Task], object] | None" = None

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """The name of the action."""

        @property
        def queue(self) -> str:
            """The only queue that has it, if there is one."""

    def throttle_key(self, task: "Task") -> str:
        """Return the key under which the task counts for the rate and the concurrency."""
        try:
            value = copy_context().run(self.key, task) if callable(self.key) else None
        except PROJECT_ERRORS as error:
            raise passable(error) from error.__cause__
        if isinstance(self.key, str) and isinstance(task.data, dict):
            value = task.data.get(self.key)
        return key_text(self.queue, self.name, "" if value is None else value)
