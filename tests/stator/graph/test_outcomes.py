"""The policy, as a table of cases: what a handler returned or raised, and what that means."""

import asyncio

import pytest

from stator.exceptions import AttemptTimedOut, Fail, NotBegun, TryAgainLater
from stator.graph.backoff import MAX_SECONDS, Backoff
from stator.graph.graphs import State, StateGraph
from stator.graph.outcomes import Moved, Released, Waiting, resolve
from tests.testapp.basic import StepGraph


class Errand(StateGraph):
    idle = State(try_interval=60, backoff=30, force_initial=True)
    tried = State(try_interval=60, backoff=30, max_failures=3)
    timed = State(try_interval=60, backoff=30, max_failures=3)
    shaky = State(try_interval=100, jitter=0.5, backoff=Backoff(base=10, cap=40))
    done = State()
    failed = State()
    overdue = State()

    idle.transitions_to(done, tried, timed, shaky, idle)
    tried.transitions_to(done)
    tried.fails_to(failed)
    timed.transitions_to(done)
    timed.fails_to(failed)
    timed.times_out_to(overdue, seconds=1000)
    shaky.transitions_to(done)

    @classmethod
    def handle_idle(cls, instance): ...

    @classmethod
    def handle_tried(cls, instance): ...

    @classmethod
    def handle_timed(cls, instance): ...

    @classmethod
    def handle_shaky(cls, instance): ...


class LongErrand(Errand):
    extra = State()
    Errand.idle.transitions_to(extra)


class Parcel(StateGraph):
    """What its states store is older than the graph."""

    packed = State(value=0, try_interval=60, backoff=30)
    sent = State(value=1)
    packed.transitions_to(sent)

    @classmethod
    def handle_packed(cls, instance): ...


idle, tried, timed, shaky = Errand.idle, Errand.tried, Errand.timed, Errand.shaky
LATER = TryAgainLater(after=5, reason="not yet")


def caused(error, cause):
    """The error as ``raise error from cause`` leaves it."""
    error.__cause__ = cause
    return error


CASES = [
    # state, result, failures, age -> where it goes or how long it waits, whether that counts as an error
    ("a state", idle, Errand.done, 0, 0, "done", ""),
    ("a name", idle, "done", 0, 0, "done", ""),
    ("a stored value", Parcel.packed, 1, 0, 0, "sent", ""),
    ("a truth that equals a value", Parcel.packed, True, 0, 0, 30, "InvalidTransition"),
    ("a value that is not stored", Parcel.packed, "1", 0, 0, 30, "InvalidTransition"),
    ("itself", idle, Errand.idle, 0, 0, "idle", ""),
    ("a timeout's state", timed, Errand.overdue, 0, 0, "overdue", ""),
    ("a failure's state", tried, Errand.failed, 0, 0, "failed", ""),
    ("the parent graph's state", LongErrand.idle, Errand.done, 0, 0, "done", ""),
    ("the subclass's state", LongErrand.idle, LongErrand.extra, 0, 0, "extra", ""),
    ("a state although late", timed, Errand.done, 0, 5000, "done", ""),
    ("None", idle, None, 0, 0, 60, ""),
    ("an undeclared state", tried, Errand.idle, 0, 0, 30, "InvalidTransition"),
    ("a wrong name", idle, "nowhere", 0, 0, 30, "InvalidTransition"),
    ("another graph's state", idle, StepGraph.done, 0, 0, 30, "InvalidTransition"),
    ("a child graph's state", idle, LongErrand.done, 0, 0, 30, "InvalidTransition"),
    ("a state of no graph", idle, State(), 0, 0, 30, "InvalidTransition"),
    ("True", idle, True, 0, 0, 30, "InvalidTransition"),
    ("a list of states", idle, [Errand.done], 0, 0, 30, "InvalidTransition"),
    ("what is not hashable", idle, {}, 0, 0, 30, "InvalidTransition"),
    ("an error", idle, ValueError("x"), 0, 0, 30, "ValueError"),
    ("the last allowed error", tried, ValueError("x"), 1, 0, 30, "ValueError"),
    ("one error too many", tried, ValueError("x"), 2, 0, "failed", "ValueError"),
    ("a wrong state too many", tried, "nowhere", 2, 0, "failed", "InvalidTransition"),
    ("Fail with an edge", tried, Fail("no"), 0, 0, "failed", "Fail"),
    ("Fail because of an error", tried, caused(Fail(), ValueError("why")), 0, 0, "failed", "ValueError"),
    ("Fail with a text of its own", tried, caused(Fail("no"), ValueError("why")), 0, 0, "failed", "Fail"),
    ("Fail without an edge", idle, Fail("no"), 0, 0, 30, "Fail"),
    ("a timeout of the attempt", tried, AttemptTimedOut("slow"), 0, 0, 30, "AttemptTimedOut"),
    ("later", idle, TryAgainLater(), 0, 0, 60, ""),
    ("later, after", idle, TryAgainLater(after=5), 0, 0, 5, ""),
    ("later, at once", idle, TryAgainLater(after=0), 0, 0, 0, ""),
    ("later after errors", tried, TryAgainLater(after=5), 99, 0, 5, ""),
    ("later than databases can count", idle, TryAgainLater(after=1e300), 0, 0, MAX_SECONDS, ""),
    ("None near the timeout", timed, None, 0, 970, 30, ""),
    ("None past the timeout", timed, None, 0, 1000, "overdue", ""),
    ("later near the timeout", timed, TryAgainLater(after=500), 0, 990, 10, ""),
    ("later past the timeout", timed, TryAgainLater(after=5), 0, 1001, "overdue", ""),
    ("an error near the timeout", timed, ValueError("x"), 0, 990, 10, "ValueError"),
    ("an error past the timeout", timed, ValueError("x"), 0, 1001, "overdue", "ValueError"),
    ("one error too many past the timeout", timed, ValueError("x"), 2, 1001, "failed", "ValueError"),
    ("Fail past the timeout", timed, Fail("no"), 0, 1001, "failed", "Fail"),
    ("SystemExit", idle, SystemExit(1), 0, 0, 30, "SystemExit"),
    ("CancelledError", idle, asyncio.CancelledError(), 0, 0, 30, "asyncio.exceptions.CancelledError"),
]


@pytest.mark.parametrize(
    ("state", "result", "failures", "age", "expected", "error"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_outcome_follows_from_state_result_failures_and_age(state, result, failures, age, expected, error):
    outcome = resolve(state, result, failures=failures, age=age)
    if isinstance(expected, str):
        assert isinstance(outcome, Moved)
        assert outcome.to is state.graph.states[expected]
    else:
        assert isinstance(outcome, Waiting)
        assert outcome.delay == expected
    assert (outcome.failure.kind.removeprefix("stator.exceptions.") if outcome.failure else "") == error


def test_wrong_state_names_graph_state_what_came_and_what_is_allowed():
    message = resolve(tried, Errand.idle).failure.message
    assert message == (
        "Errand.tried: the handler returned the state 'idle'; declared transitions lead to done, failed; "
        "return one of these, its name, or None"
    )
    # A wrong name is shown shortened.
    assert len(resolve(idle, "x" * 10_000).failure.message) < 400


def test_fail_in_a_state_without_fails_to_says_that_it_is_tried_again():
    failure = resolve(idle, Fail("no address")).failure
    assert failure.message.startswith("no address; idle has no fails_to(), so Fail is an error like any other")
    # It is logged as an error, for it is not the end of the object.
    assert not failure.deliberate
    assert resolve(tried, Fail("no address")).failure.message == "no address"


def test_any_reason_to_wait_is_recorded():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("not even a text")

    assert resolve(idle, LATER) == Waiting(5.0, None, "not yet")
    assert resolve(idle, TryAgainLater(after=5, reason=Mute())).reason == "<Mute.__str__ raised RuntimeError>"
    assert resolve(idle, TryAgainLater(after=5, reason=404)).reason == "404"
    assert resolve(idle, TryAgainLater(after=5, reason=None)).reason == ""


def test_interval_is_jittered_within_bounds():
    delays = [resolve(shaky, None).delay for _ in range(500)]
    assert 50 <= min(delays) < 60
    assert 140 < max(delays) <= 150


@pytest.mark.parametrize(("failures", "ceiling"), [(0, 10), (1, 20), (2, 40), (3, 40), (50, 40)])
def test_back_off_grows_with_the_errors_up_to_its_cap(failures, ceiling):
    delays = [resolve(shaky, ValueError(), failures=failures).delay for _ in range(300)]
    assert ceiling / 10 <= min(delays)
    assert max(delays) <= ceiling


def test_wrong_delay_is_an_error_where_it_is_asked_for():
    for after in ("soon", float("nan"), [], True):
        with pytest.raises(TypeError, match=r"after=.* must be a number of seconds or None"):
            TryAgainLater(after=after)


def test_try_again_later_is_let_through_by_except_exception():
    assert not issubclass(TryAgainLater, Exception)
    assert issubclass(Fail, Exception)


def test_attempt_that_did_not_begin_is_released_after_any_number_of_errors():
    for state in (idle, tried, timed):
        assert resolve(state, NotBegun(2.0, "away"), failures=1000, age=1e6) == Released(2.0, "away")
