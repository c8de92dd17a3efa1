"""Events as graphs declare them. Independent of Django."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stator.exceptions import GraphError
from stator.graph.conditions import Trigger
from stator.graph.options import SECONDS, is_count

if TYPE_CHECKING:
    from stator.graph.states import State


class EventEdges:
    """What a state declares of events."""

    if TYPE_CHECKING:

        def _add_trigger(self, kind: str, trigger: Trigger) -> None: ...

    @cached_property
    def events(self) -> "dict[str, AwaitedEvent]":
        """The events that its objects wait for, by name."""
        return {}

    def on(
        self,
        name: str,
        *,
        permission: str = "",
        form: Callable[..., object] | None = None,
        unless: Callable[[Any, Any], bool] | None = None,
        count: int | Callable[[Any], int] = 1,
        keep_for: float | None = None,
    ) -> "AwaitedEvent":
        """Wait for an event: ``state.on("approve").to(other)`` moves an object that gets it.

        Without ``to()`` the event makes the object ready for its next attempt. The options: :class:`AwaitedEvent`.
        """
        event = AwaitedEvent(
            name=name,
            state=cast("State", self),
            permission=permission,
            form=form,
            unless=unless,
            count=count,
            keep_for=keep_for,
        )
        self._add_trigger("on", event)
        return event


class EventNames:
    """The names of a graph's events."""

    event_names: ClassVar[list[str]] = []
    # Those that are kept if they come before the first state that takes them.
    kept_names: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        states = getattr(cls, "states").values()  # noqa: B009 - of StateGraph
        events = [event for state in states for event in state.events.values()]
        cls.event_names = list(dict.fromkeys(event.name for event in events))
        cls.kept_names = {event.name for event in events if event.keep_for}


@dataclass(kw_only=True, eq=False)
class AwaitedEvent(Trigger):
    """An event that objects in a state wait for; ``instance.stator.send(name)`` sends it.

    ``permission``: its senders need this permission, for example ``"shop.approve_order"``.
    ``form``: validates the payload: a form class, or a function that takes the payload and returns what is stored.
    ``unless``: ``unless(instance, sender)`` returns True for a sender who may not send it: a user, or a ``Sender``. The
    first line of its docstring, or its name in words, is part of the refusal.
    ``count``: how many different senders it takes, or a function of the object that returns it. The function is called
    at each event; its senders need names, even if it returns 1.
    ``keep_for``: seconds for which an event that comes before its state is kept; the object gets it when it enters.
    """

    name: str
    state: "State"
    permission: str = ""
    form: Callable[..., object] | None = None
    unless: Callable[[Any, Any], bool] | None = None
    count: int | Callable[[Any], int] = 1
    keep_for: float | None = None
    # Where it moves an object; None if it makes the object ready.
    target: "State | None" = field(default=None, init=False)

    def to(self, other: "State") -> None:
        """Move the object to ``other``."""
        self.target = other
        self.state._lead("on", self, other)

    def __str__(self) -> str:
        return f"on({self.name!r})"

    def place(self, where: str, graph: Any) -> "AwaitedEvent":
        """Return the event as a graph has it, which may inherit its states; the state there takes it."""
        _check(where, self)
        state = graph.states[self.state.name]
        if self.name in state.events:
            raise GraphError(f"{where}.{self} is declared already; remove one of them")
        placed = state.events[self.name] = replace(self, state=state)
        placed.target = graph.states[self.target.name] if self.target else None
        return placed

    @property
    def lacking(self) -> str:
        """What is missing on an inherited state, and the remedy."""
        return (
            f"{self} has no .to(STATE), and the state is inherited; "
            "declare the event in the parent graph, or define the state again"
        )

    @property
    def label(self) -> str:
        """What drawings write at its edge: the name, and from how many senders."""
        senders = "several" if callable(self.count) else self.count
        return f"{self.name} from {senders}" if self.takes_several else self.name

    @property
    def takes_several(self) -> bool:
        """Whether it may take more than one sender."""
        return self.count != 1

    def needed(self, instance: Callable[[], object]) -> int:
        """Return how many senders it takes; ``instance`` is called only if that depends on the object."""
        if not callable(self.count):
            return self.count
        number = self.count(instance())
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            where = f"{self.state.name}.on({self.name!r})"
            raise GraphError(f"{where}: count() returned {number!r}; it must return a whole number of at least 1")
        return number

    @property
    def declared(self) -> list[object]:
        """What distinguishes two versions of it."""
        return [self.name, self.permission, self.form, self.unless, self.count, self.keep_for]


def _is_permission(value: object) -> bool:
    return value == "" or (isinstance(value, str) and re.fullmatch(r"\w+\.\w+", value) is not None)


NAME_LENGTH = 100
# A part of an address.
NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{NAME_LENGTH - 1}}}")
CALLABLE = (lambda value: value is None or callable(value), "callable")

OPTIONS: dict[str, tuple[Callable[[object], bool], str]] = {
    "permission": (_is_permission, 'the name of a permission, such as "shop.approve_order"'),
    "form": CALLABLE,
    "unless": CALLABLE,
    "count": (
        lambda value: callable(value) or (value is not None and is_count(value)),
        "a whole number of at least 1, or a function of the object",
    ),
    "keep_for": SECONDS,
}


def _check(where: str, event: AwaitedEvent) -> None:
    """Raise ``GraphError`` for the first unusable option of an event."""
    where = f"{where}.{event}"
    if not (isinstance(event.name, str) and NAME.fullmatch(event.name)):
        raise GraphError(f"{where}: a name is a letter and up to {NAME_LENGTH - 1} letters, digits, _, - or .")
    for name, (holds, wanted) in OPTIONS.items():
        if not holds(value := getattr(event, name)):
            raise GraphError(f"{where}: {name}={value!r} must be {wanted}")
    if event.keep_for and callable(event.count):
        raise GraphError(f"{where}: an event with keep_for takes a number as count, not a function")
