"""Functions that are called on a timetable, registered by ``@tasks.periodic``. Their rows are made in ``declared``."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from django.conf import settings

from tasks.timetable import ONE, Timetable

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Tick:
    """What a function is told that is called for one tick.

    ``key`` is the same whenever this tick is presented, after a crash too, and belongs to no other: who does something
    outside of the database can hand it on, or keep it, so that a second run does nothing. ``planned``: when it was due.
    """

    schedule: Any
    index: int
    planned: datetime
    key: str


@dataclass(frozen=True, slots=True)
class Periodic:
    """A registered function with its timetable as the code has it."""

    function: Callable[..., Any]
    name: str
    every: float | None
    cron: str
    zone: str
    jitter: float
    missed: str
    deadline: float | None

    @property
    def timetable(self) -> Timetable:
        """When it is called."""
        return Timetable(self.every, self.cron, self.zone, self.jitter)

    @property
    def declared(self) -> dict[str, Any]:
        """The columns of its schedule as the code wants them."""
        return {**asdict(self.timetable), "missed": self.missed, "deadline": self.deadline}

    def call(self, tick: Tick) -> None:
        """Call the function in this thread, with the tick if it takes one; it may be asynchronous."""
        arguments = (tick,) if inspect.signature(self.function).parameters else ()
        function = async_to_sync(self.function) if inspect.iscoroutinefunction(self.function) else self.function
        function(*arguments)


registry: dict[str, Periodic] = {}


def periodic(
    *,
    every: float | None = None,
    cron: str = "",
    zone: str | None = None,
    jitter: float = 0.0,
    missed: str = ONE,
    deadline: float | None = None,
    name: str | None = None,
) -> Callable[[Function], Function]:
    """Have workers call a function every so many seconds, or when a cron expression says so.

    >>> @tasks.periodic(every=60, jitter=15)
    ... def flush(tick):
    ...     print(tick.index, tick.key)

    The arguments are those of a :class:`~tasks.models.Schedule`; ``zone`` is by default ``TIME_ZONE``. ``name``: by
    default that of the function with its module; it must stay the same, since the schedule is found by it.
    """

    def register(function: Function) -> Function:
        known_as = name or f"{function.__module__}.{function.__qualname__}"
        if known_as in registry and registry[known_as].function is not function:
            raise ValueError(f"@periodic: there is another function {known_as!r}; give one of them a name=")
        registry[known_as] = Periodic(
            function, known_as, every, cron, zone or settings.TIME_ZONE, jitter, missed, deadline
        )
        return function

    return register
