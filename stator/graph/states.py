"""One state and the edges that leave it. Independent of Django."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from stator.exceptions import GraphError
from stator.extensions.events.edges import EventEdges
from stator.extensions.related.edges import RelatedEdges
from stator.graph.backoff import Backoff
from stator.graph.conditions import FollowedCondition, Trigger
from stator.texts import nearest

if TYPE_CHECKING:
    # Both are made of states.
    from stator.graph.graphs import StateGraph
    from stator.graph.outcomes import Moved

C = TypeVar("C")

# What the class of the graph gives a state unless it was given, so that no state of a graph has None.
_OF_GRAPH: Any = None


def _suggesting(cls: type[C]) -> type[C]:
    """Name the nearest option in the error for an unknown one; type checkers see the options of ``cls``."""

    init = cls.__init__
    _, *known = signature(init).parameters

    @wraps(init)
    def checked(self: C, **options: object) -> None:
        if unknown := [name for name in options if name not in known]:
            raise TypeError(f"State() has no option {unknown[0]!r}; {nearest(unknown[0], known)}")
        init(self, **options)

    setattr(cls, "__init__", checked)  # noqa: B010 - a method is replaced
    return cls


@_suggesting
@dataclass(kw_only=True, eq=False, repr=False)
class State(
    RelatedEdges,  # stator.extensions.related
    EventEdges,  # stator.extensions.events
):
    """One state of a graph: how its objects are attempted, and where they may go from here.

    Durations are in seconds.

    ``value``: what the column has for it, an integer or a text; by default the name. ``label``: its name for people, in
    forms and ``get_..._display()``; by default the name in words.
    ``try_interval``: time between attempts, varied at random by the fraction ``jitter``.
    ``handler_name``: name of the handler, by default ``handle_<state>``.
    ``externally_progressed``: workers do not attempt the objects; something else moves them.
    ``attempt_immediately=False``: the first attempt comes after one ``try_interval``.
    ``force_initial``: new objects start here although other states lead here.
    ``enter_by_hand=False``: only an outcome, a timeout, an error or an SQL transition moves objects here; moves by hand
    are refused. ``leave_by_hand=False``: moves by hand away from here are refused.
    ``try_at``: not before a date of the object: the name of a ``DateTimeField`` of the model, or an expression of its
    columns. Null is at once; after an error the later of the date and the back-off.
    ``delete_after``: delete objects that have been here for this time.
    ``backoff``: wait after errors: a :class:`Backoff`, seconds, or a function of the number of failures.
    ``max_failures``: take ``fails_to`` after this number of errors in a row.
    ``max_runtime``: limit for one attempt.
    ``lease``: how long a claim holds without a heartbeat.
    ``atomic``: the writes of the (synchronous) handler and its transition commit together or not at all.
    ``batch``: the handler gets a list of up to this number of objects. It returns one result for all of them, or a
    dictionary from object to result.
    ``concurrency``: how many objects in this state all workers together attempt at a time, at most.
    ``expect_within``: an object that is here for longer counts as stuck.
    ``renamed_from``: the former name of this state; rows that still have it get the new one.
    ``saves``: names of fields that the handler sets on the object. They are written with the outcome, in one statement
    and only while the claim is valid; not after an error.
    ``quarantine=False``: objects are tried again however often a lease is lost. Use it when external programs claim the
    rows; their crashes say nothing about the object.

    A ``State`` prints like its name; it equals and hashes like its stored value.
    """

    value: int | str = _OF_GRAPH
    label: str = _OF_GRAPH
    try_interval: float | None = None
    handler_name: str | None = None
    externally_progressed: bool = False
    attempt_immediately: bool = True
    # A name, or an expression of Django, which this module does not know.
    try_at: object = None
    force_initial: bool = False
    enter_by_hand: bool = True
    leave_by_hand: bool = True
    delete_after: float | None = None
    jitter: float = 0.0
    backoff: Backoff | float | Callable[[int], float] = Backoff()  # noqa: RUF009 - frozen
    max_failures: int | None = None
    max_runtime: float | None = None
    lease: float | None = None
    atomic: bool = False
    batch: int | None = None
    concurrency: int | None = None  # stator.extensions.limits
    expect_within: float | None = None
    renamed_from: str | None = None
    saves: tuple[str, ...] | list[str] = ()
    quarantine: bool = True

    def __post_init__(self) -> None:
        self.saves = tuple(self.saves) if isinstance(self.saves, list) else self.saves
        self.name = ""
        self.graph: type[StateGraph] = _OF_GRAPH
        self.edges: list[Edge] = []
        self.children: set[State] = set()
        self.parents: set[State] = set()
        self.timeout_state: State | None = None
        self.timeout_value: float | None = None
        # The column or expression that says when, in place of the value.
        self.timeout_at: object = None
        self.failure_state: State | None = None
        # Conditions for all objects here, with the state that the objects that meet one go to.
        self.conditions: list[tuple[object, State]] = []
        # What else moves objects from here, as extensions declare it.
        self.triggers: list[Trigger] = []
        # Whether one of them has no target, so that it only makes its object ready, also during an attempt.
        self.may_be_woken = False
        # What lacks a target so far.
        self.open_conditions: list[PendingEdge | Trigger] = []
        # Outcomes that lead to another state, by its name, added once the transition is found to be declared.
        self.moves: dict[str, Moved] = {}
        self.is_async = False
        self._declared = {name: getattr(self, name) for name in NAMES}

    def __repr__(self) -> str:
        return f"<State {self.name}>"

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return len(self.name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        # A state that is copied or pickled with an object remains the graph's own.
        if self.graph:
            return getattr, (self.graph._whole or self.graph, self.name)
        return super().__reduce_ex__(protocol)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, State):
            return self is other
        return self.value == other

    def __hash__(self) -> int:
        return hash(self.value)

    def transitions_to(self, *others: "State") -> None:
        """Allow handlers of this state to move an object to any of these states."""
        for other in others:
            self._add_edge("transitions_to", other)

    @overload
    def times_out_to(self, other: "State", seconds: float) -> None: ...

    @overload
    def times_out_to(self, other: "State", *, at: object) -> None: ...

    def times_out_to(self, other: "State", seconds: float | None = None, *, at: object = None) -> None:
        """Move an object to ``other`` once it has been in this state for ``seconds``, or ``at`` a date of its own.

        ``at``: the name of a ``DateTimeField`` of the model, or an expression of its columns, such as
        ``F("last_ping") + F("grace")``. Null is never. An object moves at most ``POLL_INTERVAL`` after its date,
        whoever has written it, and also if it was ready to be attempted.
        """
        self._add_edge("times_out_to", other, seconds=seconds, at=at)

    def fails_to(self, other: "State") -> None:
        """Move an object to ``other`` when its handler raises ``Fail`` or fails ``max_failures`` times in a row."""
        self._add_edge("fails_to", other)

    def when(self, condition: object) -> "PendingEdge":
        """Move all objects that match a ``Q`` without a handler: ``state.when(Q(...)).to(other)``.

        The scheduling loop moves each batch with one statement and leaves claimed objects alone.
        """
        return self._pending("when", condition)

    def _pending(self, kind: str, condition: object) -> "PendingEdge":
        """Return an edge without a handler that lacks its target so far."""
        return PendingEdge(self, kind, condition)

    def _add_trigger(self, kind: str, trigger: Trigger) -> None:
        """Add what makes objects ready until it gets a target; without one it cannot join an inherited state."""
        if self.graph:
            self.open_conditions.append(trigger)
        else:
            self.edges.append(Edge(kind, self, self, trigger=trigger))

    def _lead(self, kind: str, trigger: Trigger, other: "State") -> None:
        """Have a trigger of this state move objects to ``other``."""
        if trigger in self.open_conditions:
            self.open_conditions.remove(trigger)
        self.edges = [edge for edge in self.edges if edge.trigger is not trigger]
        self._add_edge(kind, other, trigger=trigger)

    @property
    def initial(self) -> bool:
        """Whether new objects start here."""
        return self.graph is not None and self.graph.initial_state is self

    @property
    def terminal(self) -> bool:
        """Whether objects stay here for good."""
        return not self.children

    @property
    def automatic(self) -> bool:
        """Whether workers attempt objects in this state."""
        return not (self.terminal or self.externally_progressed)

    @property
    def kind(self) -> str:
        """Who moves its objects on: ``"automatic"`` for workers, ``"external"`` for others, ``"terminal"`` for none."""
        return "terminal" if self.terminal else "external" if self.externally_progressed else "automatic"

    @property
    def needs_worker(self) -> bool:
        """Whether workers move objects on: they attempt them, or there is a timeout or a condition.

        The moves of other objects may move an object without a worker of its own.
        """
        conditions = [each for each, _ in self.conditions if not isinstance(each, FollowedCondition)]
        return self.automatic or self.timeout_state is not None or bool(conditions)

    @property
    def handler(self) -> Callable[..., object]:
        """The bound handler; raises ``AttributeError`` when the graph has none."""
        return getattr(self.graph, self.handler_name or "")

    def _add_edge(
        self, kind: str, other: "State", *, seconds: float | None = None, condition: object = None,
        trigger: Trigger | None = None, at: object = None,
    ) -> None:  # fmt: skip
        if not isinstance(other, State):
            raise GraphError(
                f"{kind}() takes a State of the same graph, not {other!r}; define the state above the edge"
            )
        if self.graph and other.graph:
            raise GraphError(
                f"{self.graph.__name__}.{self.name}: the graph is complete; "
                f"declare {kind}({other.name}) inside the class body, or subclass the graph"
            )
        # The new state stores an edge from an inherited state, so that the parent graph does not change.
        keeper = other if self.graph else self
        keeper.edges.append(Edge(kind, self, other, seconds, condition, trigger, at))

    def _copy(self) -> "State":
        return State(**self._declared)


# The names of the options.
NAMES = tuple(signature(State).parameters)


class PendingEdge:
    """The condition of a transition without a handler, without its target yet."""

    def __init__(self, state: State, kind: str, condition: object) -> None:
        self.kind = kind
        self._state = state
        self._condition = condition
        state.open_conditions.append(self)

    @property
    def lacking(self) -> str:
        """What is missing, and the remedy."""
        return f"{self.kind}() has no .to(STATE); add it"

    def to(self, other: State) -> None:
        """Move matching objects to ``other``."""
        if self in self._state.open_conditions:
            self._state.open_conditions.remove(self)
        self._state._add_edge(self.kind, other, condition=self._condition)


@dataclass(slots=True, eq=False)
class Edge:
    """A declared edge: the name of the method that declares it, and its ends.

    An edge with a trigger from a state to itself makes its objects ready.
    """

    kind: str
    state: State
    other: State
    seconds: float | None = None
    condition: object = None
    trigger: Trigger | None = None
    # The date of a timeout, in place of the seconds.
    at: object = None
