"""The registry of ``@tasks.periodic`` functions; ``periodic_sync`` creates their schedules."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from asgiref.sync import async_to_sync
from django.conf import settings

from tasks.extensions.schedules.timetable import ONE, Timetable

if TYPE_CHECKING:
    from tasks.models import Schedule

# The longest name of an entity that a schedule stores.
MAX_ENTITY = 200

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, as passed to its function.

    ``key`` is unique to this tick and stays the same if the function is called again, for example after a crash. If
    your function acts outside of the database, pass the key on or store it, so that a second call does nothing.
    ``planned``: when the tick was due.
    """

    schedule: "Schedule"
    index: int
    planned: datetime
    key: str

    @property
    def entity(self) -> str:
        """The entity of the schedule; empty if there is only one."""
        return self.schedule.entity


@dataclass(frozen=True, slots=True)
class Periodic:
    """A registered function. ``declared``: the columns of its schedules, as declared in the code."""

    function: Callable[..., object]
    name: str
    declared: dict[str, object]
    entities: tuple[str, ...] = ("",)

    def call(self, tick: Tick) -> None:
        """Call the sync or async function in this thread, with the tick if it takes an argument."""
        arguments = (tick,) if _takes_tick(self.function) else ()
        function = async_to_sync(self.function) if inspect.iscoroutinefunction(self.function) else self.function
        function(*arguments)


registry: dict[str, Periodic] = {}


def periodic(
    *bare: object,
    every: float | None = None,
    cron: str = "",
    zone: str | None = None,
    jitter: float = 0.0,
    missed: str = ONE,
    deadline: float | None = None,
    name: str | None = None,
    entity: str | Iterable[str] = "",
) -> Callable[[Function], Function]:
    """Register a function that workers call every ``every`` seconds, or at the times of a ``cron`` expression.

    >>> @tasks.periodic(every=60, jitter=15)
    ... def flush(tick):
    ...     print(tick.index, tick.key)

    The arguments are explained at :class:`~tasks.models.Schedule`. ``zone`` defaults to ``TIME_ZONE``. ``name``
    defaults to the function's module and name; do not change it, because the schedule is found by it. ``entity``: a
    name, or several; each has a schedule of its own, and ``tick.entity`` is its name. Raises ``ValueError`` if another
    function has the name.
    """
    if bare:
        raise TypeError('@tasks.periodic needs a timetable: @tasks.periodic(every=60), or cron="0 3 * * *"')
    entities = (entity,) if isinstance(entity, str) else tuple(dict.fromkeys(entity or ()))
    if not entities or not all(isinstance(each, str) and len(each) <= MAX_ENTITY for each in entities):
        raise ValueError(
            f"@periodic: entity={entity!r:.80} must be a text of up to {MAX_ENTITY} characters, or a list of them"
        )

    timetable = Timetable(every, cron, zone or settings.TIME_ZONE, jitter)
    declared = {**asdict(timetable), "missed": missed, "deadline": deadline}

    def register(function: Function) -> Function:
        if len(needed := _needed(function)) > _takes_tick(function):
            raise TypeError(
                f"@periodic: {function.__qualname__}({', '.join(needed)}) may take the tick and nothing else"
            )
        known_as = name or f"{function.__module__}.{function.__qualname__}"
        if known_as in registry and registry[known_as].function is not function:
            raise ValueError(f"@periodic: another function is named {known_as!r}; give one of them a name=")
        registry[known_as] = Periodic(function, known_as, declared, entities)
        return function

    return register


def _takes_tick(function: Callable[..., object]) -> bool:
    """Return whether a function takes an argument by place."""
    places = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(one.kind in places for one in inspect.signature(function).parameters.values())


def _needed(function: Callable[..., object]) -> list[str]:
    """Return the names of the arguments without a default."""
    return [
        one.name for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]  # fmt: skip
