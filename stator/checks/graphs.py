"""Warnings about graphs that are valid but doubtful."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from django.core import checks

from stator.checks.messages import message
from stator.conf import read_settings
from stator.extensions.events.checks import unsendable
from stator.graph import State, StateGraph
from stator.models import StatorModel

# Seconds; a loop whose states all have a shorter try_interval keeps a worker busy.
SECOND = 1.0


def check_graph(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """Yield the warnings about the graph of one model."""
    graph = model.state_graph
    for look in LOOKS:
        for number, text, hint in look(graph):
            yield message(f"W{number}", f"{graph.__name__}{text}", hint, model)


Finding = tuple[int, str, str]


def unreachable(graph: type[StateGraph]) -> Iterator[Finding]:
    """W201: a state that cannot be reached from the initial state."""
    known = _reachable(graph.initial_state)
    for state in graph.states.values():
        if state not in known:
            hint = f"Declare an edge to it, or remove it. If only moves by hand lead to {state.name}, silence this."
            yield 201, f".{state.name} cannot be reached from {graph.initial_state.name}.", hint


def dead_end(graph: type[StateGraph]) -> Iterator[Finding]:
    """W202: a state whose objects never come to rest, in a graph that has resting states."""
    if all(state.automatic for state in graph.states.values()):
        # A graph without a resting state is assumed to loop on purpose.
        return
    for state in graph.states.values():
        if all(other.automatic for other in _reachable(state)):
            hint = "Declare the edge that leads on, or make a state of the loop externally_progressed."
            wrong = "leads to no terminal or external state: its objects are attempted for ever"
            yield 202, f".{state.name} {wrong}.", hint


def busy_loop(graph: type[StateGraph]) -> Iterator[Finding]:
    """W203: a loop of states that are attempted immediately and several times a second."""
    often = {state for state in graph.automatic_states if (state.try_interval or 0) < SECOND}
    hasty = {state for state in often if state.attempt_immediately}
    for state in graph.states.values():
        if state in hasty and state in _reachable(*(state.children & hasty), within=hasty):
            hint = "Set attempt_immediately=False, or a try_interval of a second or more, on one state of the loop."
            yield 203, f".{state.name} is part of a loop without delay.", hint


def early_timeout(graph: type[StateGraph]) -> Iterator[Finding]:
    """W204: a state that times out before it is attempted a second time."""
    for state in graph.automatic_states:
        if state.timeout_value is not None and state.timeout_value < (state.try_interval or 0):
            hint = "Make the timeout longer or try_interval shorter."
            times = f"times out after {state.timeout_value:g} s, before its try_interval of {state.try_interval:g} s"
            yield 204, f".{state.name} {times}.", hint


def short_lease(graph: type[StateGraph]) -> Iterator[Finding]:
    """W205: a lease that is no longer than the interval of reaping."""
    settings, problems = read_settings()
    if problems:
        # A wrong setting, which may be no number to compare with, has an error of its own.
        return
    interval = settings.REAP_INTERVAL
    for state in graph.automatic_states:
        if state.lease is not None and state.lease <= interval:
            hint = "Make the lease several times as long as STATOR['REAP_INTERVAL']; workers extend it while they run."
            wrong = f"has a lease of {state.lease:g} s, not longer than REAP_INTERVAL={interval:g}"
            yield 205, f".{state.name} {wrong}.", hint


def failures_to_nowhere(graph: type[StateGraph]) -> Iterator[Finding]:
    """W206: a limit of errors that has no effect."""
    for state in graph.automatic_states:
        if state.max_failures is not None and state.failure_state is None:
            hint = f"Declare {state.name}.fails_to(...), or remove max_failures: without the edge it does nothing."
            yield 206, f".{state.name} has max_failures={state.max_failures} and no fails_to.", hint


def stray_handlers(graph: type[StateGraph]) -> Iterator[Finding]:
    """W207: a method named like a handler that nothing calls."""
    called = {state.handler_name for state in graph.states.values()}
    for name in dir(graph):
        if name.startswith("handle_") and name not in called and callable(getattr(graph, name, None)):
            close = get_close_matches(name.removeprefix("handle_"), graph.states, 1)
            meant = f" Did you mean handle_{close[0]}?" if close else ""
            yield 207, f".{name} is not the handler of any state.", f"Rename it, or name it in handler_name=.{meant}"


LOOKS = (
    unreachable, dead_end, busy_loop, early_timeout, short_lease, failures_to_nowhere, stray_handlers,
    unsendable,  # stator.extensions.events
)  # fmt: skip


def _reachable(*starts: State, within: Iterable[State] | None = None) -> set[State]:
    """Return the given states and all states that edges reach from them."""
    reachable: set[State] = set()
    waiting = list(starts)
    while waiting:
        state = waiting.pop()
        if state not in reachable and (within is None or state in within):
            reachable.add(state)
            waiting += state.children
    return reachable
