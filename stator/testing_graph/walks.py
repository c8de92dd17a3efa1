"""Random walks of objects through a graph; Hypothesis chooses them, and shortens walks that find a fault."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync

from stator.exceptions import AttemptTimedOut, Fail, TryAgainLater
from stator.graph import State
from stator.graph.backoff import MAX_SECONDS
from stator.graph.outcomes import Moved, Outcome, Released, resolve
from stator.testing_graph.certain import Fault, WalkPlan
from stator.testing_graph.tried import TriedClaim

try:
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

    from stator.extensions.events.walks import SendsEvents
except ImportError as missing:
    raise ImportError("check_graph() needs Hypothesis, which is not installed; pip install hypothesis") from missing

ERRORS = (ValueError, OSError, AttemptTimedOut, SystemExit)
NEVER_DECLARED: tuple[object, ...] = ("", "no such state", True, 0, b"", [], {}, object(), State())


def run_walks(plan: WalkPlan, max_examples: int, max_steps: int) -> None:
    """Walk with results of every kind; if there are objects, walk again with the results of their handlers."""
    options = settings(
        max_examples=max_examples,
        stateful_step_count=max_steps,
        deadline=None,
        # No explanations, which take longer than everything else and are not shown.
        phases=[Phase.generate, Phase.shrink],
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for walk in (PolicyWalk, HandlerWalk) if plan.objects is not None else (PolicyWalk,):
        _run(walk, plan, options)


def _run(walk: "type[Walk]", plan: WalkPlan, options: settings) -> None:
    machine: Any = partial(walk, plan)
    try:
        run_state_machine_as_test(machine, settings=options)
    except Fault as fault:
        # The notes of Hypothesis are dropped, because they repeat the fault in other words.
        raise AssertionError(str(fault)) from fault.__cause__


class Walk(
    SendsEvents,  # stator.extensions.events
    RuleBasedStateMachine,
):
    """The walk of an object through a graph, with all events outside of handlers."""

    def __init__(self, plan: WalkPlan) -> None:
        super().__init__()
        self.plan = plan
        self.object: Any = None
        self.shown_object = ""
        self.enter(plan.entries[0])

    def enter(self, state: State) -> None:
        """Start a walk at ``state``."""
        self.at, self.path, self.version = state, state.name, 0
        self.failures, self.age = 0, 0.0
        self.events: tuple[object, ...] = ()
        # The durable steps that the handler has done in this visit of the state, as JSON.
        self.steps: dict[str, str] = {}

    def go(self, state: State, by: str, event: object = None) -> None:
        """Move to ``state``, and add the move to the path; ``event`` has moved the object."""
        self.events, self.steps = (event,) if event else (), {}
        self.at, self.path, self.version = state, f"{self.path} -{by}-> {state.name}", self.version + 1
        self.failures, self.age = 0, 0.0
        self._show_state()

    def stay(self, by: str, failures: int, waited: float) -> None:
        """Stay in the state for ``waited`` seconds, and add the reason to the path."""
        self.path = f"{self.path} -{by}-> {self.at.name}"
        self.failures = failures
        self.age += waited

    def fault(self, what: str) -> Fault:
        """Return the fault with the path to it."""
        return Fault(self.at, what, f"{self.path}{self.shown_object}")

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Put an object at an entry."""
        self._begin(data)

    def _begin(self, data: st.DataObject) -> None:
        self.enter(data.draw(st.sampled_from(self.plan.entries)))
        if self.plan.objects is not None:
            self.object = data.draw(self.plan.objects)
            self.shown_object = f", with {_shown(self.object)}"
            self._show_state()

    @precondition(lambda self: self.at.terminal)
    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        """After a terminal state, put another object at an entry."""
        self._begin(data)

    @precondition(lambda self: not self.at.terminal)
    @rule(data=st.data())
    def let_time_pass(self, data: st.DataObject) -> None:
        """Age up to the timeout or past it; an external state is never attempted, so its timeout is taken here.

        The date of a timeout may come at any time, in every state.
        """
        timeout = self.at.timeout_value or 86400.0
        seconds = data.draw(st.one_of(st.just(timeout), st.floats(0, 2 * timeout)))
        self.stay(f"{seconds:g} s", self.failures, seconds)
        if self.at.timeout_state is None:
            return
        if self.at.timeout_at is not None:
            is_late = data.draw(st.booleans())
        else:
            is_late = not self.at.automatic and self.age >= timeout
        if is_late:
            self.go(self.at.timeout_state, "times_out_to")

    @precondition(lambda self: self.others)
    @rule(data=st.data())
    def move_from_outside(self, data: st.DataObject) -> None:
        """Move as if a condition were met or, in an external state, as if something outside moved the object."""
        self.go(data.draw(st.sampled_from(self.others)), "from outside")

    @property
    def others(self) -> list[State]:
        """The states that the object enters by a condition or from outside, and not by an event."""
        others = [to for _, to in self.at.conditions]
        if not self.at.automatic:
            edges = [edge for edge in self.plan.graph.edges if edge.state is self.at and edge.kind != "on"]
            others += sorted({edge.other for edge in edges} - set(others), key=str)
        return others

    def settle(self, result: object, by: str) -> None:
        """Follow the outcome of an attempt's result."""
        outcome = self.outcome_of(result, by)
        if isinstance(outcome, Moved):
            self.go(outcome.to, by)
            return
        if isinstance(outcome, Released):
            raise self.fault(f"{by} must move or wait, but gave {outcome}")
        self._check_delay(outcome.delay, by)
        self.stay(by, self.failures + 1 if outcome.failure else 0, outcome.delay)

    def outcome_of(self, result: object, by: str) -> Outcome:
        """Return the outcome of an attempt's result."""
        try:
            return resolve(self.at, result, failures=self.failures, age=self.age)
        except Exception as error:
            raise self.fault(f"the result {by} cannot be resolved: {type(error).__name__}: {error}") from error

    def _check_delay(self, delay: float, by: str) -> None:
        left = math.inf if self.at.timeout_value is None else self.at.timeout_value - self.age
        if not 0 <= delay <= min(left, MAX_SECONDS):
            raise self.fault(f"{by} waits {delay} s; it must be from 0 to {min(left, MAX_SECONDS):g} s")

    def _show_state(self) -> None:
        field = getattr(self.object, "_state_field", None)
        name = field.attname if field else "state"
        if hasattr(self.object, name):
            setattr(self.object, name, self.at.value)


class PolicyWalk(Walk):
    """Attempts with every kind of result that a handler can return."""

    @precondition(lambda self: self.at.automatic)
    @rule(data=st.data(), form=st.sampled_from([lambda state: state, str]))
    def return_declared(self, data: st.DataObject, form: Callable[[State], object]) -> None:
        """Return a declared state, or its name."""
        to = data.draw(st.sampled_from(sorted(self.at.children, key=str)))
        self.settle(form(to), f"returned {to.name}")

    @precondition(lambda self: self.at.automatic)
    @rule()
    def return_none(self) -> None:
        """Return None."""
        self.settle(None, "None")

    @precondition(lambda self: self.at.automatic)
    @rule(after=st.one_of(st.none(), st.integers(0, 10**12), st.floats(0, allow_nan=False)))
    def try_again_later(self, after: float | None) -> None:
        """Raise ``TryAgainLater`` with any delay."""
        self.settle(TryAgainLater(after), f"TryAgainLater({after})")

    @precondition(lambda self: self.may_err())
    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def fail_in_a_row(self, data: st.DataObject, error: type[BaseException]) -> None:
        """Raise one or more errors; those before the last are only counted."""
        times = data.draw(st.integers(1, self.plan.errors[self.at.name] - self.failures))
        self.failures += times - 1
        self.settle(error("of a walk"), "error" if times == 1 else f"{times} errors")

    @precondition(lambda self: self.may_err())
    @rule()
    def fail_for_good(self) -> None:
        """Raise ``Fail``."""
        self.settle(Fail("of a walk"), "Fail")

    @precondition(lambda self: self.may_err())
    @rule(data=st.data())
    def return_undeclared(self, data: st.DataObject) -> None:
        """Return a state without an edge from the current one, or a value that is not a state."""
        others = [state for state in self.plan.graph.states.values() if state not in self.at.children]
        result = data.draw(st.sampled_from([*others, *map(str, others), *NEVER_DECLARED]))
        self.settle(result, "an undeclared result")

    def may_err(self) -> bool:
        """Return whether another error in a row can happen."""
        return self.at.automatic and self.failures < self.plan.errors[self.at.name]


class HandlerWalk(Walk):
    """Walks with attempts by the handlers of the graph."""

    @precondition(lambda self: self.at.automatic)
    @rule()
    def call_handler(self) -> None:
        """Run the handler of the state on the object."""
        if hasattr(self.object, "__dict__"):
            vars(self.object)["stator"] = TriedClaim(
                self.object, self.at, self.steps, events=self.events, version=self.version, failures=self.failures,
                age=self.age,
            )  # fmt: skip
        result = _result_of(self.at, self.object)
        if isinstance(result, Fail):
            if self.at.failure_state is None:
                raise self.fault("the handler raised Fail, but the state has no fails_to") from result
        elif isinstance(result, Exception):
            if not isinstance(result, self.plan.raises):
                error = f"{type(result).__name__}: {result}"
                raise self.fault(f"the handler raised {error}; if it may, add it to raises=") from result
        elif self.outcome_of(result, _named(result)).failure is not None:
            allowed = ", ".join(sorted(map(str, self.at.children)))
            raise self.fault(f"the handler returned {result!r}; declared transitions lead to {allowed}")
        self.settle(result, _named(result))


def _result_of(state: State, instance: object) -> object:
    argument = [instance] if state.batch else instance
    try:
        call: Callable[..., Any] = state.handler
        result = async_to_sync(call)(argument) if state.is_async else call(argument)
    except (Exception, TryAgainLater) as error:  # noqa: BLE001 - whatever a handler raises is its result
        return error
    if inspect.iscoroutine(result):
        result.close()
    return result.get(instance) if state.batch and isinstance(result, dict) else result


def _named(result: object) -> str:
    return type(result).__name__ if isinstance(result, BaseException) else f"handler {result}"


def _shown(instance: object) -> str:
    """Return an object's own values as text, without the framework's columns."""
    own = {name: value for name, value in getattr(instance, "__dict__", {}).items() if not _is_ours(name)}
    values = ", ".join(f"{name}={value!r}" for name, value in own.items())
    return f"{type(instance).__name__}({values})" if own else repr(instance)


def _is_ours(name: str) -> bool:
    return name.startswith(("_", "state_")) or name in ("state", "stator")
