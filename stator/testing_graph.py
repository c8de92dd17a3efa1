"""Explores a graph: what is certain by looking at all of it, the rest by walks that Hypothesis chooses and shortens."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync

from stator.backoff import LONGEST
from stator.exceptions import AttemptTimedOut, Fail, TryAgainLater
from stator.graph import State, StateGraph
from stator.outcomes import Moved, Waiting, resolve

try:
    from hypothesis import HealthCheck, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
except ImportError as missing:
    raise ImportError("check_graph() needs Hypothesis, which is not installed; pip install hypothesis") from missing

# More errors in a row than a row that fails every hour has in a year.
MOST_ERRORS = 10_000
ERRORS = (ValueError, OSError, AttemptTimedOut, SystemExit)
NEVER_DECLARED = ("", "no such state", True, 0, b"", [], {}, object(), State())


@dataclass(frozen=True)
class Plan:
    """What is explored. ``errors``: how many in a row can happen in each state."""

    graph: type[StateGraph]
    entries: list[State]
    objects: Any = None
    raises: tuple[type[Exception], ...] = ()
    errors: dict[str, int] = field(default_factory=dict)


def explore(plan: Plan, max_examples: int, max_steps: int) -> None:
    """Look at all states, then walk; ``AssertionError`` with one message for the first fault."""
    ways = shortest_ways(plan.graph, plan.entries)
    check_reached(plan, ways)
    check_rest(plan.graph, ways)
    for state in plan.graph.states.values():
        if state.automatic:
            plan.errors[state.name] = check_backoff(state, ways[state.name])
    options = settings(
        max_examples=max_examples,
        stateful_step_count=max_steps,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for walk in (PolicyWalk, HandlerWalk) if plan.objects is not None else (PolicyWalk,):
        _run(walk, plan, options)


def _run(walk: "type[Walk]", plan: Plan, options: settings) -> None:
    try:
        run_state_machine_as_test(lambda: walk(plan), settings=options)  # type: ignore[no-untyped-call]
    except Fault as fault:
        # Without the notes of Hypothesis, which tell the same in the words of this module.
        raise AssertionError(str(fault)) from fault.__cause__


class Fault(AssertionError):
    """What is wrong, and the way there."""

    def __init__(self, state: State, what: str, way: str) -> None:
        super().__init__(f"{state.graph.__name__}.{state.name}: {what}; way there: {way}")


# What is certain


def shortest_ways(graph: type[StateGraph], entries: list[State]) -> dict[str, str]:
    """The shortest way from an entry to each state that can be reached, as text."""
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
    """Every state can be reached."""
    for name in plan.graph.states:
        if name not in ways:
            starts = ", ".join(state.name for state in plan.entries)
            raise AssertionError(
                f"{plan.graph.__name__}.{name}: no edge leads here from {starts}; "
                "lead to it, or name it in entries= when objects are put into it by hand"
            )


def check_rest(graph: type[StateGraph], ways: dict[str, str]) -> None:
    """From every state rest can be reached, unless the graph has none and so watches something for ever."""
    at_rest = [name for name, state in graph.states.items() if not state.automatic]
    if not at_rest:
        return
    can_rest, waiting = set(at_rest), deque(at_rest)
    while waiting:
        parents = {parent.name for parent in graph.states[waiting.popleft()].parents} - can_rest
        can_rest |= parents
        waiting += parents
    # In the order of their ways, so that the first one told is the way into the trap.
    for name in sorted(set(ways) - can_rest, key=lambda name: ways[name].count("->")):
        what = "no terminal or externally progressed state can be reached from here"
        raise AssertionError(str(Fault(graph.states[name], what, ways[name])))


def check_backoff(state: State, way: str) -> int:
    """How many errors in a row can happen, of which the back-off function was asked for each."""
    most = MOST_ERRORS
    if state.failure_state is not None and state.max_failures is not None:
        most = min(most, state.max_failures)
    if not callable(state.backoff):
        return most
    waited, until = 0.0, state.timeout_value or LONGEST
    for errors in range(1, most + (most == MOST_ERRORS)):
        problem = _problem(state.backoff, errors)
        if problem:
            what = f"backoff {problem} after {errors} {'error' if errors == 1 else 'errors in a row'}"
            raise AssertionError(str(Fault(state, f"{what}; it must give a number of seconds of 0 or more", way)))
        waited += float(state.backoff(errors))
        if waited >= until:
            return errors
    return most


def _problem(backoff: Callable[[int], float], errors: int) -> str:
    try:
        given = backoff(errors)
        return "" if math.isfinite(float(given)) and given >= 0 else f"gave {given!r}"
    except Exception as error:  # noqa: BLE001 - whatever the function of a project raises is the finding
        return f"raised {type(error).__name__}: {error}, or gave what is no number,"


# Walks


class Walk(RuleBasedStateMachine):
    """An object on its way through a graph, by what happens to it outside of handlers."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.object: Any = None
        self.told = ""
        self.enter(plan.entries[0])

    def enter(self, state: State) -> None:
        """Begin a way."""
        self.at, self.way = state, state.name
        self.failures, self.age = 0, 0.0

    def go(self, state: State, by: str) -> None:
        """Move, and remember the way."""
        self.at, self.way = state, f"{self.way} -{by}-> {state.name}"
        self.failures, self.age = 0, 0.0
        self._show_state()

    def stay(self, by: str, failures: int, waited: float) -> None:
        """Wait, and remember why."""
        self.way = f"{self.way} -{by}-> {self.at.name}"
        self.failures = failures
        self.age += waited

    def fault(self, what: str) -> Fault:
        """The fault with the way there."""
        return Fault(self.at, what, f"{self.way}{self.told}")

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Put an object at an entry."""
        self.enter(data.draw(st.sampled_from(self.plan.entries)))
        if self.plan.objects is not None:
            self.object = data.draw(self.plan.objects)
            self.told = f", with {_shown(self.object)}"
            self._show_state()

    @precondition(lambda self: self.at.terminal)
    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        """At the end, put another object at an entry."""
        self.begin(data)

    @precondition(lambda self: not self.at.terminal)
    @rule(data=st.data())
    def let_time_pass(self, data: st.DataObject) -> None:
        """Age, up to the timeout and past it; nobody attempts an external state, so its timeout is taken here."""
        timeout = self.at.timeout_value or 86400.0
        seconds = data.draw(st.one_of(st.just(timeout), st.floats(0, 2 * timeout)))
        self.stay(f"{seconds:g} s", self.failures, seconds)
        if not self.at.automatic and self.at.timeout_state and self.age >= timeout:
            self.go(self.at.timeout_state, "times_out_to")

    @precondition(lambda self: not self.at.terminal and (self.at.conditions or not self.at.automatic))
    @rule(data=st.data())
    def move_from_outside(self, data: st.DataObject) -> None:
        """A condition is met, or whoever moves objects on in an external state does."""
        others = [to for _, to in self.at.conditions]
        if not self.at.automatic:
            others += sorted(self.at.children - set(others), key=str)
        self.go(data.draw(st.sampled_from(others)), "from outside")

    def settle(self, result: Any, by: str) -> None:
        """Have the policy decide, and compare with what is declared."""
        try:
            outcome = resolve(self.at, result, failures=self.failures, age=self.age)
        except Exception as error:
            raise self.fault(f"after {by}, resolving it raised {type(error).__name__}: {error}") from error
        wanted = expected(self.at, result, self.failures, self.age)
        errs = is_error(self.at, result)
        if wanted is not None:
            if not isinstance(outcome, Moved) or outcome.to is not wanted or (outcome.failure is not None) != errs:
                raise self.fault(f"{by} must lead to {wanted.name}, but gave {outcome}")
            self.go(wanted, by)
            return
        if not isinstance(outcome, Waiting) or (outcome.failure is not None) != errs:
            raise self.fault(f"{by} must wait{' as an error' if errs else ''}, but gave {outcome}")
        self._check_delay(outcome.delay, by)
        self.stay(by, self.failures + 1 if errs else 0, outcome.delay)

    def _check_delay(self, delay: float, by: str) -> None:
        left = math.inf if self.at.timeout_value is None else self.at.timeout_value - self.age
        if not 0 <= delay <= min(left, LONGEST):
            raise self.fault(f"{by} waits {delay} s; at least 0 and at most {min(left, LONGEST):g} are possible")

    def _show_state(self) -> None:
        if hasattr(self.object, "state"):
            self.object.state = self.at.name


class PolicyWalk(Walk):
    """Attempts with every kind of result that a handler can have."""

    @precondition(lambda self: self.at.automatic)
    @rule(data=st.data(), spelled=st.sampled_from([lambda state: state, str]))
    def return_declared(self, data: st.DataObject, spelled: Callable[[State], Any]) -> None:
        """A state that is declared, or its name."""
        to = data.draw(st.sampled_from(sorted(self.at.children, key=str)))
        self.settle(spelled(to), f"returned {to.name}")

    @precondition(lambda self: self.at.automatic)
    @rule()
    def return_none(self) -> None:
        """Not yet."""
        self.settle(None, "None")

    @precondition(lambda self: self.at.automatic)
    @rule(after=st.one_of(st.none(), st.integers(-10, 10**12), st.floats(allow_nan=False)))
    def try_again_later(self, after: float | None) -> None:
        """Not yet, with any delay."""
        self.settle(TryAgainLater(after), f"TryAgainLater({after})")

    @precondition(lambda self: self.may_err())
    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def fail_in_a_row(self, data: st.DataObject, error: type[BaseException]) -> None:
        """One or more errors; those before the last are only counted."""
        times = data.draw(st.integers(1, self.plan.errors[self.at.name] - self.failures))
        self.failures += times - 1
        self.settle(error("of a walk"), "error" if times == 1 else f"{times} errors")

    @precondition(lambda self: self.may_err())
    @rule()
    def fail_for_good(self) -> None:
        """``Fail``."""
        self.settle(Fail("of a walk"), "Fail")

    @precondition(lambda self: self.may_err())
    @rule(data=st.data())
    def return_undeclared(self, data: st.DataObject) -> None:
        """A state of the graph to which no edge leads, or what is no state at all."""
        others = [state for state in self.plan.graph.states.values() if state not in self.at.children]
        result = data.draw(st.sampled_from([*others, *map(str, others), *NEVER_DECLARED]))
        self.settle(result, "an undeclared result")

    def may_err(self) -> bool:
        """Whether another error in a row can happen."""
        return self.at.automatic and self.failures < self.plan.errors[self.at.name]


class HandlerWalk(Walk):
    """Attempts by the handlers of the graph."""

    @precondition(lambda self: self.at.automatic)
    @rule()
    def call_handler(self) -> None:
        """Run the handler of the state on the object."""
        result = _result_of(self.at, self.object)
        if isinstance(result, Fail):
            if self.at.failure_state is None:
                raise self.fault("the handler raised Fail, but the state has no fails_to") from result
        elif isinstance(result, Exception):
            if not isinstance(result, self.plan.raises):
                told = f"{type(result).__name__}: {result}"
                raise self.fault(f"the handler raised {told}; name the error in raises= if it may") from result
        elif is_error(self.at, result):
            allowed = ", ".join(sorted(map(str, self.at.children)))
            raise self.fault(f"the handler returned {result!r}; declared transitions lead to {allowed}")
        self.settle(result, _named(result))


# The same policy as that of stator.outcomes, told a second time and in another way.


def is_error(state: State, result: Any) -> bool:
    """Whether a result counts as an error: raised, or returned and not declared."""
    if isinstance(result, BaseException):
        return not isinstance(result, TryAgainLater)
    return result is not None and _declared(state, result) is None


def expected(state: State, result: Any, failures: int, age: float) -> State | None:
    """Where a result must lead; None where the object must wait."""
    if not isinstance(result, BaseException) and _declared(state, result):
        return _declared(state, result)
    for_good = isinstance(result, Fail) or (state.max_failures or math.inf) <= failures + 1
    if is_error(state, result) and for_good and state.failure_state:
        return state.failure_state
    timed_out = state.timeout_value is not None and age >= state.timeout_value
    return state.timeout_state if timed_out else None


def _declared(state: State, result: Any) -> State | None:
    if isinstance(result, State):
        # By graph as well: a state of a parent graph is named like its heir, one of another graph may be.
        ours = result.graph is not None and issubclass(state.graph, result.graph)
        result = result.name if ours else None
    targets = {edge.other.name for edge in state.graph.edges if edge.state.name == state.name}
    return state.graph.states[result] if isinstance(result, str) and result in targets else None


def _result_of(state: State, instance: Any) -> Any:
    argument = [instance] if state.batch else instance
    try:
        result = async_to_sync(state.handler)(argument) if state.is_async else state.handler(argument)
    except (Exception, TryAgainLater) as error:
        return error
    return result.get(instance) if state.batch and isinstance(result, dict) else result


def _named(result: Any) -> str:
    return type(result).__name__ if isinstance(result, BaseException) else f"handler {result}"


def _shown(instance: Any) -> str:
    """An object as it was made, without the columns of the framework."""
    own = {name: value for name, value in getattr(instance, "__dict__", {}).items() if not _is_ours(name)}
    values = ", ".join(f"{name}={value!r}" for name, value in own.items())
    return f"{type(instance).__name__}({values})" if own else repr(instance)


def _is_ours(name: str) -> bool:
    return name.startswith(("_", "state_")) or name == "state"


def entries_of(graph: type[StateGraph], names: Iterable[Any]) -> list[State]:
    """The initial state and those named; ``ValueError`` for a name that the graph does not have."""
    if unknown := [str(name) for name in names if str(name) not in graph.states]:
        raise ValueError(f"{graph.__name__} has no state {unknown[0]!r}; entries= takes states of the graph")
    return list(dict.fromkeys([graph.initial_state, *(graph.states[str(name)] for name in names)]))
