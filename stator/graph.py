"""What is allowed: states, the edges between them, and the handler of each. Knows nothing of Django."""

import inspect
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, ClassVar

from stator.backoff import Backoff
from stator.exceptions import GraphError
from stator.options import OPTIONS, check_options, is_seconds

RESERVED = ("states", "initial_state", "terminal_states", "automatic_states", "choices", "edges", "renames")
STATE_NAME_LENGTH = 100


class State:
    """One state of a graph: how its objects are attempted, and where they may go from here.

    Seconds unless said otherwise. ``try_interval``: between attempts, moved at random by the fraction ``jitter``.
    ``handler_name``: instead of ``handle_<state>``. ``externally_progressed``: never attempted, something else moves
    the object. ``attempt_immediately=False``: first attempt after one ``try_interval``. ``force_initial``: new objects
    start here although other states lead here. ``delete_after``: delete objects that have been here so long.
    ``backoff``: after errors; a :class:`Backoff`, seconds, or a function of the number of failures. ``max_failures``:
    after so many errors in a row take ``fails_to``. ``max_runtime``: for one attempt. ``lease``: how long a claim
    holds without a heartbeat. ``atomic``: the writes of the (synchronous) handler and its transition commit together or not at
    all. ``batch``: the handler gets a list of up to so many objects, and returns one result for all or a dictionary from
    object to result. ``concurrency``: at most so many objects in this state are attempted at a time, over all workers.
    ``expect_within``: an object here for longer counts as stuck. ``renamed_from``: the
    former name of this state; rows that still bear it are moved here.

    A ``State`` equals, prints and hashes like its name.
    """

    def __init__(
        self,
        *,
        try_interval: float | None = None,
        handler_name: str | None = None,
        externally_progressed: bool = False,
        attempt_immediately: bool = True,
        force_initial: bool = False,
        delete_after: float | None = None,
        jitter: float = 0.0,
        backoff: Backoff | float | Callable[[int], float] = Backoff(),  # noqa: B008 - frozen
        max_failures: int | None = None,
        max_runtime: float | None = None,
        lease: float | None = None,
        atomic: bool = False,
        batch: int | None = None,
        concurrency: int | None = None,
        expect_within: float | None = None,
        renamed_from: str | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError(_unknown_option(next(iter(unknown))))
        self.try_interval = try_interval
        self.handler_name = handler_name
        self.externally_progressed = externally_progressed
        self.attempt_immediately = attempt_immediately
        self.force_initial = force_initial
        self.delete_after = delete_after
        self.jitter = jitter
        self.backoff = backoff
        self.max_failures = max_failures
        self.max_runtime = max_runtime
        self.lease = lease
        self.atomic = atomic
        self.batch = batch
        self.concurrency = concurrency
        self.expect_within = expect_within
        self.renamed_from = renamed_from
        self.name = ""
        self.graph: type[StateGraph] | None = None
        self.edges: list[Edge] = []
        self.children: set[State] = set()
        self.parents: set[State] = set()
        self.timeout_state: State | None = None
        self.timeout_value: float | None = None
        self.failure_state: State | None = None
        self.is_async = False
        self._declared = {name: getattr(self, name) for name in OPTIONS}

    def __repr__(self) -> str:
        return f"<State {self.name}>"

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return len(self.name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Copied or pickled with an object, a state is still the one of its graph.
        return (getattr, (self.graph, self.name)) if self.graph else super().__reduce_ex__(protocol)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, State):
            return self is other
        return self.name == other

    def __hash__(self) -> int:
        return hash(self.name)

    def transitions_to(self, *others: "State") -> None:
        """Allow handlers of this state to move an object to any of ``others``."""
        for other in others:
            self._add_edge("transitions_to", other)

    def times_out_to(self, other: "State", seconds: float) -> None:
        """Move an object to ``other`` once it has been in this state for ``seconds``."""
        self._add_edge("times_out_to", other, seconds)

    def fails_to(self, other: "State") -> None:
        """Move an object to ``other`` when its handler raises ``Fail`` or has failed ``max_failures`` times in a row."""
        self._add_edge("fails_to", other)

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
    def handler(self) -> Callable[..., Any]:
        """The bound handler; ``AttributeError`` when the graph has none."""
        return getattr(self.graph, self.handler_name or "")

    def _add_edge(self, kind: str, other: "State", seconds: float | None = None) -> None:
        if not isinstance(other, State):
            raise GraphError(f"{kind}() takes a State of the same graph, not {other!r}; define the state above the edge")
        if self.graph and other.graph:
            raise GraphError(
                f"{self.graph.__name__}.{self.name}: the graph is complete; "
                f"declare {kind}({other.name}) inside the class body, or subclass the graph"
            )
        # An edge from an inherited state is kept by the new state, so that the parent graph does not change.
        keeper = other if self.graph else self
        keeper.edges.append(Edge(kind, self, other, seconds))

    def _copy(self) -> "State":
        return State(**self._declared)


class Edge:
    """A declared way from one state to another: ``transitions_to``, ``times_out_to`` or ``fails_to``."""

    __slots__ = ("kind", "other", "seconds", "state")

    def __init__(self, kind: str, state: State, other: State, seconds: float | None = None) -> None:
        self.kind = kind
        self.state = state
        self.other = other
        self.seconds = seconds


class StateGraph:
    """The states of a model and the ways between them, checked when the class is made.

    A subclass of a graph inherits its states and edges and may add to both; a state of the same name replaces
    the inherited one. Raises :class:`GraphError` naming graph, state and remedy.
    """

    states: ClassVar[dict[str, State]] = {}
    choices: ClassVar[list[tuple[str, str]]]
    initial_state: ClassVar[State]
    terminal_states: ClassVar[set[State]]
    automatic_states: ClassVar[set[State]]
    edges: ClassVar[list[Edge]] = []
    renames: ClassVar[dict[str, State]] = {}

    def __init_subclass__(cls) -> None:
        _check_bases(cls)
        inherited_states, inherited_edges = cls.states, cls.edges
        cls.states = {name: state._copy() for name, state in inherited_states.items()}
        for name, state in _declared(cls):
            cls.states[name] = state
        for name, state in cls.states.items():
            _name(cls, state, name)
        cls.edges = [*inherited_edges, *(edge for state in cls.states.values() for edge in state.edges)]
        for edge in cls.edges:
            _check_ends(cls, edge)
            _apply(cls, edge)
        for name, state in cls.states.items():
            state.graph = cls
            setattr(cls, name, state)
        _complete(cls)


def _check_bases(cls: type[StateGraph]) -> None:
    graphs = [base.__name__ for base in cls.__bases__ if issubclass(base, StateGraph) and base.states]
    if len(graphs) > 1:
        raise GraphError(f"{cls.__name__}: has two graphs as bases, {' and '.join(graphs)}; inherit from one")


def _declared(cls: type[StateGraph]) -> Iterator[tuple[str, State]]:
    for name, value in list(vars(cls).items()):
        if isinstance(value, State) and (name in RESERVED or hasattr(StateGraph, name)):
            raise GraphError(f"{cls.__name__}: {name!r} is reserved by StateGraph; choose another name")
        if isinstance(value, State):
            yield name, value


def _name(cls: type[StateGraph], state: State, name: str) -> None:
    if (state.name and state.name != name) or state.graph not in (None, cls):
        raise GraphError(
            f"{cls.__name__}.{name}: the same State object is also {state.name!r}; give each state a State() of its own"
        )
    if len(name) > STATE_NAME_LENGTH:
        raise GraphError(f"{cls.__name__}.{name}: a state's name has at most {STATE_NAME_LENGTH} characters")
    state.name = name
    state.handler_name = state.handler_name or f"handle_{name}"


def _check_ends(cls: type[StateGraph], edge: Edge) -> None:
    for end in (edge.state, edge.other):
        foreign = end.graph is not None and not issubclass(cls, end.graph)
        if foreign or end.name not in cls.states:
            raise GraphError(
                f"{cls.__name__}.{edge.state.name or '?'}.{edge.kind}({end.name or end!r}): "
                "that state is not part of this graph; define both states in the same class"
            )


def _apply(cls: type[StateGraph], edge: Edge) -> None:
    state, other = cls.states[edge.state.name], cls.states[edge.other.name]
    where = f"{cls.__name__}.{state.name}"
    state.children.add(other)
    other.parents.add(state)
    if edge.kind == "times_out_to":
        _refuse_second(where, edge, state.timeout_state)
        if not is_seconds(edge.seconds):
            raise GraphError(
                f"{where}.times_out_to({other.name}): seconds={edge.seconds!r} must be a number above 0 "
                "and below a hundred years"
            )
        state.timeout_state, state.timeout_value = other, edge.seconds
    elif edge.kind == "fails_to":
        _refuse_second(where, edge, state.failure_state)
        state.failure_state = other


def _refuse_second(where: str, edge: Edge, taken: State | None) -> None:
    if taken is not None:
        raise GraphError(f"{where}: {edge.kind}({taken.name}) is set already; a state has one such edge, remove the other")


def _complete(cls: type[StateGraph]) -> None:
    if not cls.states:
        raise GraphError(f"{cls.__name__} has no states; add at least one: name = State()")
    forced = [state for state in cls.states.values() if state.force_initial]
    initial = forced or [state for state in cls.states.values() if not state.parents - {state}]
    if len(initial) != 1:
        raise GraphError(_initial_message(cls, initial))
    cls.initial_state = initial[0]
    for state in cls.states.values():
        _check_state(cls, state)
    cls.terminal_states = {state for state in cls.states.values() if state.terminal}
    cls.automatic_states = {state for state in cls.states.values() if state.automatic}
    cls.choices = [(name, name) for name in cls.states]
    cls.renames = _renames(cls)


def _initial_message(cls: type[StateGraph], initial: list[State]) -> str:
    if not initial:
        return f"{cls.__name__} has no initial state: every state is led to by another; set force_initial=True on one"
    names = ", ".join(sorted(state.name for state in initial))
    return (
        f"{cls.__name__} has more than one initial state: {names}; "
        "lead to all but one with transitions_to(), or set force_initial=True on one"
    )


def _check_state(cls: type[StateGraph], state: State) -> None:
    where = f"{cls.__name__}.{state.name}"
    check_options(where, state._declared)
    handler = getattr(cls, state.handler_name or "", None)
    if state.terminal:
        if handler is not None:
            raise GraphError(
                f"{where}: a terminal state has no handler; remove {state.handler_name}() or declare a transition"
            )
        state.externally_progressed = True
        return
    if handler is not None:
        _check_handler(cls, where, state, handler)
    if state.atomic and state.is_async:
        raise GraphError(f"{where}: atomic needs a synchronous handler; Django's transactions are those of one thread")
    if state.externally_progressed:
        if state.failure_state:
            raise GraphError(f"{where}: is never attempted, so it cannot fail; remove fails_to()")
        return
    if handler is None:
        raise GraphError(
            f"{where}: has no handler; add a classmethod {state.handler_name}(cls, instance), "
            "or set handler_name= or externally_progressed=True"
        )
    if state.try_interval is None:
        raise GraphError(f"{where}: has no try_interval; set try_interval=SECONDS or externally_progressed=True")


def _check_handler(cls: type[StateGraph], where: str, state: State, handler: Any) -> None:
    if not callable(handler):
        raise GraphError(f"{where}: handler {state.handler_name} is not callable; make it a classmethod")
    raw = inspect.getattr_static(cls, state.handler_name or "")
    if inspect.isfunction(raw) and len(inspect.signature(raw).parameters) > 1:
        raise GraphError(f"{where}: handler {state.handler_name} lacks @classmethod")
    state.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def _renames(cls: type[StateGraph]) -> dict[str, State]:
    renames: dict[str, State] = {}
    for state in cls.states.values():
        former = state.renamed_from
        if former and (former in cls.states or former in renames):
            raise GraphError(f"{cls.__name__}.{state.name}: renamed_from={former!r} is taken; name a state that is gone")
        if former:
            renames[former] = state
    return renames


def _unknown_option(name: str) -> str:
    close = get_close_matches(name, OPTIONS, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"options are {', '.join(sorted(OPTIONS))}"
    return f"State() has no option {name!r}; {remedy}"


__all__ = ["Backoff", "Edge", "State", "StateGraph"]
