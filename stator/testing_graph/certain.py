"""Checks of a graph as a whole, without walks and without Hypothesis."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

from stator.graph import State, StateGraph
from stator.graph.backoff import LONGEST

# More errors in a row than a row that fails every hour has in a year.
MOST_ERRORS = 10_000


@dataclass(frozen=True)
class Plan:
    """What to explore. ``errors``: how many can happen in a row in each state."""

    graph: type[StateGraph]
    entries: list[State]
    objects: Any = None
    raises: tuple[type[Exception], ...] = ()
    errors: dict[str, int] = field(default_factory=dict)


class Fault(AssertionError):
    """A fault of a graph, and the way there."""

    def __init__(self, state: State, what: str, way: str) -> None:
        super().__init__(f"{state.graph.__name__}.{state.name}: {what}; way there: {way}")


def entries_of(graph: type[StateGraph], names: Iterable[object]) -> list[State]:
    """Return the initial state and the named ones; raise ``ValueError`` for a name that the graph does not have."""
    if unknown := [str(name) for name in names if str(name) not in graph.states]:
        raise ValueError(f"{graph.__name__} has no state {unknown[0]!r}; entries= takes states of the graph")
    return list(dict.fromkeys([graph.initial_state, *(graph.states[str(name)] for name in names)]))


def shortest_ways(graph: type[StateGraph], entries: list[State]) -> dict[str, str]:
    """Return the shortest way from an entry to each reachable state, as text."""
    ways = {state.name: state.name for state in entries}
    waiting = deque(ways)
    while waiting:
        name = waiting.popleft()
        for edge in graph.edges:
            if edge.state.name == name and edge.other.name not in ways:
                ways[edge.other.name] = f"{ways[name]} -{edge.kind}-> {edge.other.name}"
                waiting.append(edge.other.name)
    return ways


def check_reached(plan: Plan, ways: dict[str, str]) -> None:
    """Check that every state can be reached."""
    for name in plan.graph.states:
        if name not in ways:
            starts = ", ".join(state.name for state in plan.entries)
            raise AssertionError(
                f"{plan.graph.__name__}.{name}: no edge leads here from {starts}; "
                "declare an edge to it, or name it in entries= if objects are put into it by hand"
            )


def check_rest(graph: type[StateGraph], ways: dict[str, str]) -> None:
    """Check that every state leads to a resting one. A graph without resting states is assumed to loop on purpose."""
    at_rest = [name for name, state in graph.states.items() if not state.automatic]
    if not at_rest:
        return
    can_rest, waiting = set(at_rest), deque(at_rest)
    while waiting:
        parents = {parent.name for parent in graph.states[waiting.popleft()].parents} - can_rest
        can_rest |= parents
        waiting += parents
    # Ordered by length, so that the way into a trap comes before the ways within it.
    for name, way in ways.items():
        if name not in can_rest:
            raise Fault(graph.states[name], "no terminal or externally progressed state can be reached from here", way)


def check_backoff(state: State, way: str) -> int:
    """Return how many errors can happen in a row; check that the back-off function gives a valid delay after each."""
    limited = state.failure_state is not None and state.max_failures is not None
    most = min(MOST_ERRORS, state.max_failures or MOST_ERRORS) if limited else MOST_ERRORS
    if not callable(state.backoff):
        return most
    waited, until = 0.0, state.timeout_value or LONGEST
    # The last of a limited number of errors moves the object, so its delay does not matter.
    for errors in range(1, most if limited else most + 1):
        waited += _asked(state, state.backoff, errors, way)
        if waited >= until:
            return errors
    return most


def _asked(state: State, backoff: Callable[[int], object], errors: int, way: str) -> float:
    try:
        given = backoff(errors)
        delay = float(given) if isinstance(given, Real | Decimal) else math.nan
    except Exception as error:  # noqa: BLE001 - whatever the function of a project raises is the finding
        what = f"raised {type(error).__name__}: {error}"
    else:
        if 0 <= delay < math.inf:
            return delay
        what = f"gave {given!r}"
    times = "1 error" if errors == 1 else f"{errors} errors in a row"
    raise Fault(state, f"after {times} backoff {what}; it must give a number of seconds of 0 or more", way)
