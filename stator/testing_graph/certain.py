"""Checks of a graph as a whole, without walks and without Hypothesis."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING

from stator.graph import State, StateGraph
from stator.graph.backoff import MAX_SECONDS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# The most errors in a row to try; an object that fails every hour has fewer in a year.
MAX_ERRORS = 10_000


@dataclass(frozen=True)
class WalkPlan:
    """What to explore. ``errors``: the most errors in a row in each state. ``events``: payloads by event."""

    graph: type[StateGraph]
    entries: list[State]
    objects: "SearchStrategy[object] | None" = None
    raises: tuple[type[Exception], ...] = ()
    errors: dict[str, int] = field(default_factory=dict)
    events: "Mapping[str, SearchStrategy[object] | None]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A graph has the names only if the extension of events is there.
        if unknown := sorted(set(self.events) - set(getattr(self.graph, "event_names", ()))):
            raise ValueError(f"{self.graph.__name__} has no event {unknown[0]!r}; events= takes events of the graph")


class Fault(AssertionError):
    """A fault of a graph, with the path to it."""

    def __init__(self, state: State, what: str, path: str) -> None:
        super().__init__(f"{state.graph.__name__}.{state.name}: {what}; path: {path}")


def entries_of(graph: type[StateGraph], names: Iterable[object]) -> list[State]:
    """Return the initial state and the named ones; raise ``ValueError`` for a name that the graph does not have."""
    if unknown := [str(name) for name in names if str(name) not in graph.states]:
        raise ValueError(f"{graph.__name__} has no state {unknown[0]!r}; entries= takes states of the graph")
    return list(dict.fromkeys([graph.initial_state, *(graph.states[str(name)] for name in names)]))


def shortest_paths(graph: type[StateGraph], entries: list[State]) -> dict[str, str]:
    """Return the shortest path from an entry to each reachable state, as text."""
    paths = {state.name: state.name for state in entries}
    waiting = deque(paths)
    while waiting:
        name = waiting.popleft()
        for edge in graph.edges:
            if edge.state.name == name and edge.other.name not in paths:
                paths[edge.other.name] = f"{paths[name]} -{edge.kind}-> {edge.other.name}"
                waiting.append(edge.other.name)
    return paths


def check_reached(plan: WalkPlan, paths: dict[str, str]) -> None:
    """Check that every state can be reached."""
    for name in plan.graph.states:
        if name not in paths:
            starts = ", ".join(state.name for state in plan.entries)
            raise AssertionError(
                f"{plan.graph.__name__}.{name}: no edge leads here from {starts}; "
                "declare an edge to it, or name it in entries= if objects are put into it by hand"
            )


def check_rest(graph: type[StateGraph], paths: dict[str, str]) -> None:
    """Check that every state leads to a resting one. A graph without resting states is assumed to loop on purpose."""
    at_rest = [name for name, state in graph.states.items() if not state.automatic]
    if not at_rest:
        return
    can_rest, waiting = set(at_rest), deque(at_rest)
    while waiting:
        parents = {parent.name for parent in graph.states[waiting.popleft()].parents} - can_rest
        can_rest |= parents
        waiting += parents
    # The shortest paths come first, so a trap is reported at its entrance.
    for name, path in paths.items():
        if name not in can_rest:
            raise Fault(graph.states[name], "no terminal or externally progressed state can be reached from here", path)


def check_backoff(state: State, path: str) -> int:
    """Check that the back-off function returns a valid delay after each error; return the most errors in a row."""
    limited = state.failure_state is not None and state.max_failures is not None
    most = min(MAX_ERRORS, state.max_failures or MAX_ERRORS) if limited else MAX_ERRORS
    if not callable(state.backoff):
        return most
    waited, until = 0.0, state.timeout_value or MAX_SECONDS
    # The last of a limited number of errors moves the object, so its delay does not matter.
    for errors in range(1, most if limited else most + 1):
        waited += _delay_after(state, state.backoff, errors, path)
        if waited >= until:
            return errors
    return most


def _delay_after(state: State, backoff: Callable[[int], object], errors: int, path: str) -> float:
    try:
        given = backoff(errors)
        delay = float(given) if isinstance(given, Real | Decimal) else math.nan
    except Exception as error:  # noqa: BLE001 - whatever the function of a project raises is the finding
        what = f"raised {type(error).__name__}: {error}"
    else:
        if 0 <= delay < math.inf:
            return delay
        what = f"returned {given!r}"
    times = "1 error" if errors == 1 else f"{errors} errors in a row"
    raise Fault(state, f"after {times} backoff {what}; it must return seconds, at least 0", path)
