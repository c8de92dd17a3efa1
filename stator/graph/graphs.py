"""Graphs of states, checked when their classes are made. Independent of Django."""

import inspect
from collections.abc import Collection, Iterator
from types import new_class
from typing import ClassVar

from stator.exceptions import GraphError
from stator.extensions.events.edges import EventNames
from stator.graph.backoff import Backoff
from stator.graph.dates import WANTED, is_date
from stator.graph.options import STATE_NAME_LENGTH, check_options, is_seconds
from stator.graph.states import Edge, State


class StateGraph(
    EventNames,  # stator.extensions.events
):
    """The states of a model and the edges between them, checked when the class is made.

    A subclass of a graph inherits its states and edges and may add to both; a state of the same name replaces
    the inherited one. Raises :class:`GraphError` with the graph, the state and the remedy.
    """

    states: ClassVar[dict[str, State]] = {}
    choices: ClassVar[list[tuple[str | int, str]]]
    initial_state: ClassVar[State]
    terminal_states: ClassVar[set[State]]
    automatic_states: ClassVar[set[State]]
    edges: ClassVar[list[Edge]] = []
    renames: ClassVar[dict[str, State]] = {}
    # The graph of which this is :func:`at_rest`.
    _whole: ClassVar["type[StateGraph] | None"] = None

    def __init_subclass__(cls) -> None:
        _check_bases(cls)
        _check_reserved(cls)
        inherited_states, inherited_edges = cls.states, cls.edges
        cls.states = {name: state._copy() for name, state in inherited_states.items()}
        for name, state in _declared(cls):
            cls.states[name] = state
        for name, state in cls.states.items():
            _name(cls, state, name)
        _check_values(cls)
        cls.edges = [*inherited_edges, *(edge for state in cls.states.values() for edge in state.edges)]
        for state in (*cls.states.values(), *inherited_states.values()):
            _check_led(cls, state)
        for edge in cls.edges:
            _check_ends(cls, edge)
            _apply(cls, edge)
        for name, state in cls.states.items():
            state.graph = cls
            setattr(cls, name, state)
        _complete(cls)
        super().__init_subclass__()


# What each graph computes.
RESERVED = frozenset(name for base in StateGraph.__mro__ for name in vars(base).get("__annotations__", ()))


def at_rest(graph: type[StateGraph], names: Collection[str]) -> type[StateGraph]:
    """Return a graph as workers see it while other code moves the objects in these states.

    Nothing attempts, times out or deletes them, and no condition moves them. All states and edges stay.
    """
    body = {"__module__": graph.__module__, "__qualname__": graph.__qualname__, "__doc__": graph.__doc__}
    made: type[StateGraph] = new_class(graph.__name__, (graph,), exec_body=lambda own: own.update(body))
    for state in map(made.states.__getitem__, names):
        state.externally_progressed, state.conditions = True, []
        state.timeout_state = state.timeout_value = state.timeout_at = None
        state.delete_after = state.expect_within = None
    made.automatic_states = {state for state in made.states.values() if state.automatic}
    made._whole = graph
    return made


def state_problem(graph: type[StateGraph], name: object) -> str:
    """Return that a graph has no state of this name, and which ones it has; empty if it has one."""
    if str(name) in graph.states:
        return ""
    known = [name if state.value == name else f"{name} ({state.value})" for name, state in graph.states.items()]
    return f"{str(name)!r} is not a state of {graph.__name__}; its states are {', '.join(known)}"


def _check_bases(cls: type[StateGraph]) -> None:
    graphs = [base.__name__ for base in cls.__bases__ if issubclass(base, StateGraph) and base.states]
    if len(graphs) > 1:
        raise GraphError(f"{cls.__name__}: has two graphs as bases, {' and '.join(graphs)}; inherit from one")


def _check_reserved(cls: type[StateGraph]) -> None:
    """Refuse a state, and any value under the names that this class computes, that would replace an own attribute."""
    for name, value in vars(cls).items():
        if name in RESERVED or (isinstance(value, State) and hasattr(StateGraph, name)):
            raise GraphError(f"{cls.__name__}: {name!r} is reserved by StateGraph; choose another name")


def _check_led(cls: type[StateGraph], state: State) -> None:
    if state.open_conditions:
        raise GraphError(f"{cls.__name__}: {state.name}.{state.open_conditions.pop().lacking}")


def _declared(cls: type[StateGraph]) -> Iterator[tuple[str, State]]:
    return ((name, value) for name, value in list(vars(cls).items()) if isinstance(value, State))


def _name(cls: type[StateGraph], state: State, name: str) -> None:
    if (state.name and state.name != name) or state.graph not in (None, cls):
        raise GraphError(
            f"{cls.__name__}.{name}: the same State object is also {state.name!r}; give each state a State() of its own"
        )
    if len(name) > STATE_NAME_LENGTH:
        raise GraphError(f"{cls.__name__}.{name}: the name is too long; use at most {STATE_NAME_LENGTH} characters")
    check_options(f"{cls.__name__}.{name}", state._declared)
    value, label = state._declared["value"], state._declared["label"]
    state.name, state.value = name, name if value is None else value
    # A lazy translation stays one.
    state.label = name[:1].upper() + name[1:].replace("_", " ") if label is None else label
    state.handler_name = state.handler_name or f"handle_{name}"


def _check_values(cls: type[StateGraph]) -> None:
    """Refuse stored values from which the column, or a reader, cannot tell the states."""
    taken: dict[object, State] = {}
    for state in cls.states.values():
        other = taken.setdefault(state.value, state)
        named = cls.states.get(str(state.value), state)
        where = f"{cls.__name__}.{state.name}: value={state.value!r}"
        if other is not state:
            raise GraphError(f"{where} is also that of {other.name}; give each state a value of its own")
        if named is not state:
            raise GraphError(f"{where} is the name of another state; choose another value")
        first = next(iter(cls.states.values()))
        if isinstance(first.value, int) != isinstance(state.value, int):
            raise GraphError(
                f"{where} and {first.name}: value={first.value!r} are an integer and a text, "
                "and a column has one type; give every state an integer, or none"
            )


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
    if edge.trigger is not None:
        state.triggers.append(edge.trigger.place(where, cls))
        if edge.trigger.target is None:
            state.may_be_woken = True
            return
    state.children.add(other)
    other.parents.add(state)
    if edge.kind == "times_out_to":
        _refuse_second(where, edge, state.timeout_state)
        _check_time(f"{where}.times_out_to({other.name})", edge)
        state.timeout_state, state.timeout_value, state.timeout_at = other, edge.seconds, edge.at
    elif edge.kind == "fails_to":
        _refuse_second(where, edge, state.failure_state)
        state.failure_state = other
    elif edge.kind.startswith("when"):
        # Recognized by its attribute, because this module does not import Django.
        if not getattr(edge.condition, "conditional", False):
            raise GraphError(f"{where}.when({edge.condition!r}): takes a condition, such as Q(paid=True)")
        state.conditions.append((edge.condition, other))


def _check_time(where: str, edge: Edge) -> None:
    if edge.at is not None:
        if edge.seconds is not None:
            raise GraphError(f"{where}: has seconds and at; give one of them")
        if not is_date(edge.at):
            raise GraphError(f"{where}: at={edge.at!r} must be {WANTED}")
    elif not is_seconds(edge.seconds):
        raise GraphError(f"{where}: seconds={edge.seconds!r} must be a number above 0 and below a hundred years")


def _refuse_second(where: str, edge: Edge, taken: State | None) -> None:
    if taken is not None:
        raise GraphError(
            f"{where}: {edge.kind}({taken.name}) is set already; a state has one such edge, so remove one of them"
        )


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
    cls.choices = [(state.value, state.label) for state in cls.states.values()]
    cls.renames = _renames(cls)


def _initial_message(cls: type[StateGraph], initial: list[State]) -> str:
    if not initial:
        return (
            f"{cls.__name__} has no initial state: every state has an edge from another; "
            f"set force_initial=True on one, perhaps on {next(iter(cls.states))}, which is declared first"
        )
    names = ", ".join(sorted(state.name for state in initial))
    return (
        f"{cls.__name__} has more than one initial state: {names}; "
        "declare transitions to all but one of them, or set force_initial=True on one"
    )


def _check_state(cls: type[StateGraph], state: State) -> None:
    where = f"{cls.__name__}.{state.name}"
    if not state.enter_by_hand:
        _check_entry(where, state)
    _check_attempts(cls, where, state)
    if state.try_at is not None and not state.automatic:
        raise GraphError(f"{where}: workers do not attempt its objects; remove try_at")


def _check_attempts(cls: type[StateGraph], where: str, state: State) -> None:
    handler = getattr(cls, state.handler_name or "", None)
    if state.terminal:
        if handler is not None:
            raise GraphError(
                f"{where}: a terminal state has no handler; remove {state.handler_name}() or declare a transition"
            )
        state.externally_progressed = True
        _check_moves(where, state)
        return
    if handler is not None:
        _check_handler(cls, where, state, handler)
    if state.atomic and state.is_async:
        raise GraphError(f"{where}: atomic needs a synchronous handler; Django's transactions belong to one thread")
    if (state.conditions or state.triggers) and handler is None and state.try_interval is None:
        state.externally_progressed = True
    if state.externally_progressed:
        if state.failure_state:
            raise GraphError(f"{where}: is never attempted, so it cannot fail; remove fails_to()")
        _check_moves(where, state)
        return
    if handler is None:
        raise GraphError(
            f"{where}: has no handler; add a classmethod {state.handler_name}(cls, instance), "
            "or set handler_name= or externally_progressed=True"
        )
    if state.try_interval is None:
        raise GraphError(f"{where}: has no try_interval; set try_interval=SECONDS or externally_progressed=True")


def _check_moves(where: str, state: State) -> None:
    for trigger in state.triggers:
        if trigger.target is None:
            raise GraphError(
                f"{where}.{trigger}: nothing attempts objects here, so it would do nothing; add .to(STATE)"
            )


def _check_entry(where: str, state: State) -> None:
    if state.initial:
        raise GraphError(f"{where}: new objects are created in the initial state; remove enter_by_hand=False")
    if not state.parents - {state}:
        raise GraphError(f"{where}: no edge leads here; declare one, or remove enter_by_hand=False")


def _check_handler(cls: type[StateGraph], where: str, state: State, handler: object) -> None:
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
            raise GraphError(
                f"{cls.__name__}.{state.name}: renamed_from={former!r} is taken; name a state that no longer exists"
            )
        # A row has no former name of a state whose number is stored.
        if former and isinstance(state.value, str):
            renames[former] = state
    return renames


__all__ = ["Backoff", "Edge", "State", "StateGraph", "at_rest"]
