"""How much runs at once, and what becomes of attempts that take too long."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from stator.conf import Settings
from stator.graph.outcomes import Moved, Released, Waiting
from stator.worker import attempts as module
from stator.worker.attempts import Attempts
from stator.worker.executor import STOPPED
from stator.worker.thread_pool import ThreadPool
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import FakeClaim, FakeOperations, WorkGraph, until
from tests.stator.worker.test_room import Threads

# The outcome of an attempt that has begun and is given up: it counts.
INTERRUPTED = Released(reason=STOPPED, begun=True)


class Ran:
    """Attempts, and the outcomes that came out of them."""

    def __init__(self, **settings):
        self.outcomes = []
        self.attempts = Attempts(Settings(**settings), self.done, lambda operations, attempted: None)

    def done(self, claim, outcome):
        self.outcomes.append((claim, outcome))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.attempts.stop()


def forever():
    return asyncio.Event().wait()


async def test_claim_whose_lease_is_nearly_over_is_released_and_not_begun():
    async with Ran() as ran:
        late = [FakeClaim(FakeOperations(), state, pytest.fail, deadline=0.0) for state in ("awaited", "called")]
        ran.attempts.begin(late)
        await until(lambda: len(ran.outcomes) == 2)
        assert {outcome for _, outcome in ran.outcomes} == {Released()}
        assert not any(claim.started for claim in late)


async def test_async_attempt_past_its_time_is_cancelled_and_counts_as_an_error():
    async with Ran() as ran:
        claim = FakeClaim(FakeOperations(), "awaited", forever, max_runtime=5.0)
        ran.attempts.begin([claim])
        await until(lambda: claim.started)
        ran.attempts.sweep()
        assert ran.outcomes == []
        claim.started -= 6
        ran.attempts.sweep()
        await until(lambda: ran.outcomes)
        ((_, outcome),) = ran.outcomes
        assert isinstance(outcome, Waiting)
        assert outcome.failure.kind == "stator.exceptions.AttemptTimedOut"
        assert "max_runtime=5 s" in outcome.failure.message


async def test_attempt_whose_lease_ran_out_or_whose_claim_has_ended_is_cancelled_and_released():
    async with Ran() as ran:
        late, ended, other = claims = [FakeClaim(FakeOperations(), "awaited", forever) for _ in range(3)]
        ran.attempts.begin(claims)
        await until(lambda: all(claim.started for claim in claims))
        late.deadline = time.monotonic() - 1
        ran.attempts.sweep()
        await until(lambda: ran.outcomes)
        assert ran.outcomes == [(late, INTERRUPTED)]
        ran.attempts.cancel_ended({id(ended), 12345})
        await until(lambda: len(ran.outcomes) == 2)
        assert ran.outcomes[1:] == [(ended, INTERRUPTED)]
        assert id(other) in ran.attempts.running


async def test_handler_that_swallows_its_cancellation_is_abandoned_and_its_answer_dropped(monkeypatch):
    monkeypatch.setattr(module, "GRACE", -1.0)
    gate = asyncio.Event()

    async def stubborn():
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()
        return "done"

    async with Ran() as ran:
        claim = FakeClaim(FakeOperations(), "awaited", stubborn, max_runtime=5.0)
        ran.attempts.begin([claim])
        await until(lambda: claim.started)
        claim.started -= 6
        ran.attempts.sweep()
        ran.attempts.sweep()
        assert len(ran.outcomes) == 1
        assert ran.outcomes[0][1].failure.kind == "stator.exceptions.AttemptTimedOut"
        gate.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(ran.outcomes) == 1


async def test_sync_handler_past_its_time_is_given_up_and_its_thread_counts_as_stuck():
    gate = threading.Event()
    async with Ran(THREADS=1) as ran:
        claim = FakeClaim(FakeOperations(), "called", lambda: gate.wait(PATIENCE) and "done", max_runtime=5.0)
        ran.attempts.begin([claim])
        await until(lambda: claim.started)
        claim.started -= 6
        ran.attempts.sweep()
        assert ran.outcomes[0][1].failure.kind == "stator.exceptions.AttemptTimedOut"
        assert ran.attempts.trouble()
        assert ran.attempts.room("app.model", False) == 0
        gate.set()
        await until(lambda: not ran.attempts.trouble())
        assert len(ran.outcomes) == 1
        assert ran.attempts.room("app.model", False) > 0


async def test_stopping_cancels_async_attempts_and_releases_the_rest():
    gate = threading.Event()
    async with Ran(THREADS=1) as ran:
        cancelled = FakeClaim(FakeOperations(), "awaited", forever)
        blocked = FakeClaim(FakeOperations(), "called", lambda: gate.wait(PATIENCE) and "done")
        ran.attempts.begin([cancelled, blocked])
        await until(lambda: cancelled.started and blocked.started)
        ran.attempts.cancel_all()
        await until(lambda: ran.outcomes)
        ran.attempts.release_all()
        assert ran.outcomes == [(cancelled, INTERRUPTED), (blocked, INTERRUPTED)]
        gate.set()


# Claims ahead of need; test_room.py has how many.


def make_short(attempts, label="app.model", is_async=True):
    for _ in range(100):
        attempts._room.took(label, is_async, 0.0001)


async def test_what_is_claimed_ahead_begins_in_order_as_places_become_free():
    gates = [asyncio.Event() for _ in range(6)]
    async with Ran(CONCURRENCY=2, BATCH_SIZE=10) as ran:
        make_short(ran.attempts)
        assert ran.attempts.room("app.model", True) == 10
        claims = [FakeClaim(FakeOperations(), "awaited", gate.wait) for gate in gates]
        ran.attempts.begin(claims)
        for begun in range(2, 6):
            await until(lambda begun=begun: sum(bool(claim.started) for claim in claims) == begun)
            await asyncio.sleep(0)
            assert [bool(claim.started) for claim in claims] == [True] * begun + [False] * (6 - begun)
            gates[begun - 2].set()
            await until(lambda begun=begun: len(ran.outcomes) == begun - 1)
        gates[4].set()
        gates[5].set()
        await until(lambda: len(ran.outcomes) == 6)
        assert [claim for claim, _ in ran.outcomes[:4]] == claims[:4]


async def test_what_is_not_short_has_the_free_places_whatever_waits():
    gate = asyncio.Event()
    async with Ran(CONCURRENCY=2, BATCH_SIZE=10) as ran:
        make_short(ran.attempts)
        short = [FakeClaim(FakeOperations(), "awaited", gate.wait) for _ in range(5)]
        ran.attempts.begin(short)
        assert ran.attempts.room("app.slow", True) == 2
        slow = FakeClaim(FakeOperations("app.slow"), "awaited", gate.wait)
        ran.attempts.begin([slow])
        await until(lambda: slow.started)
        await asyncio.sleep(0)
        assert sum(bool(claim.started) for claim in short) == 1
        assert ran.attempts.room("app.slow", True) == 0
        gate.set()
        await until(lambda: len(ran.outcomes) == 6)


async def test_threads_and_the_loop_together_run_no_more_than_concurrency():
    gate, opened = threading.Event(), asyncio.Event()
    async with Ran(CONCURRENCY=3, THREADS=2, BATCH_SIZE=50) as ran:
        make_short(ran.attempts)
        make_short(ran.attempts, is_async=False)
        called = [FakeClaim(FakeOperations(), "called", lambda: gate.wait(PATIENCE) and "done") for _ in range(4)]
        awaited = [FakeClaim(FakeOperations(), "awaited", opened.wait) for _ in range(4)]
        ran.attempts.begin(called + awaited)
        await until(lambda: sum(bool(claim.started) for claim in called + awaited) == 3)
        await asyncio.sleep(0)
        assert sum(bool(claim.started) for claim in awaited) == 1
        gate.set()
        await until(lambda: sum(bool(claim.started) for claim in awaited) == 3)
        assert not awaited[3].started
        opened.set()
        await until(lambda: len(ran.outcomes) == 8)


async def test_what_was_claimed_ahead_and_cannot_begin_is_handed_back_in_time():
    async with Ran(CONCURRENCY=2, BATCH_SIZE=10) as ran:
        make_short(ran.attempts)
        claims = [FakeClaim(FakeOperations(), "awaited", forever) for _ in range(5)]
        ran.attempts.begin(claims)
        await until(lambda: claims[1].started)
        ran.attempts.sweep()
        assert not ran.outcomes
        claims[2].claimed -= 2 * module.PATIENCE
        ran.attempts.sweep()
        assert not ran.outcomes, "others began lately"
        ran.attempts._began -= 2 * module.PATIENCE
        ran.attempts.sweep()
        assert ran.outcomes == [(claim, Released()) for claim in claims[2:]]
        ran.attempts.release_all()
        assert ran.attempts.room("app.model", True) == 2


# Asynchronous attempts that share a task.


async def test_handlers_that_do_not_suspend_follow_each_other_in_one_task(monkeypatch):
    # On a crowded machine they take longer than a task may.
    monkeypatch.setattr(module, "TURN", 60.0)
    tasks = set()

    async def act():
        tasks.add(asyncio.current_task())
        return "done"

    async with Ran() as ran:
        ran.attempts.begin([FakeClaim(FakeOperations(), "awaited", act) for _ in range(20)])
        await until(lambda: len(ran.outcomes) == 20)
    assert len(tasks) == 1


async def test_handler_that_cancels_its_own_task_does_not_cancel_the_next():
    cancelled = []

    async def act():
        cancelled.append(asyncio.current_task().cancelling())
        if len(cancelled) == 1:
            asyncio.current_task().cancel()
            return "done"
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        return "done"

    async with Ran() as ran:
        claims = [FakeClaim(FakeOperations(), "awaited", act) for _ in range(3)]
        ran.attempts.begin(claims)
        await until(lambda: len(ran.outcomes) == 3)
        assert [outcome for _, outcome in ran.outcomes] == [Moved(WorkGraph.done)] * 3
    assert cancelled == [0, 0, 0]


async def test_long_run_of_handlers_that_never_suspend_lets_the_loop_turn():
    turns = 0

    async def act():
        end = time.monotonic() + module.TURN
        while time.monotonic() < end:
            pass
        return "done"

    async with Ran() as ran:
        ran.attempts.begin([FakeClaim(FakeOperations(), "awaited", act) for _ in range(10)])
        while len(ran.outcomes) < 10:
            await asyncio.sleep(0)
            turns += 1
    assert turns >= 9


# Attempts whose asynchronous handlers call their code in threads


async def test_what_needs_a_thread_and_gets_none_soon_is_handed_back_at_once():
    async with Ran(CONCURRENCY=10) as ran:
        claims = [FakeClaim(FakeOperations(), "awaited", forever) for _ in range(4)]
        threads = Threads(1, on_loop=claims[2:])
        ran.attempts.use_threads("app.model", *threads.given())
        ran.attempts.begin(claims)
        await until(lambda: sum(bool(claim.started) for claim in claims) == 3)
        assert ran.outcomes == [(claims[1], Released())]
        assert ran.attempts.room("app.model", True) == 0
        ran.attempts.release_all()
        assert ran.attempts.room("app.model", True) == 1


async def test_while_threads_are_busy_rows_that_need_none_are_sought_with_rests():
    async with Ran(CONCURRENCY=10, POLL_INTERVAL=60) as ran:
        operations = FakeOperations()
        threads = Threads(1)
        ran.attempts.use_threads("app.model", *threads.given())
        with ran.attempts.sparing_threads(operations) as (room, found):
            assert (room, threads.spared) == (10, [operations.worker_id])
            found.append(FakeClaim(operations, "awaited"))
        assert threads.spared == []
        with ran.attempts.sparing_threads(operations) as (room, found):
            assert room == 10, "the last claim found a row"
        with ran.attempts.sparing_threads(operations) as (room, found):
            assert (room, threads.spared) == (0, []), "the last claim found none"


async def test_calls_that_wait_for_a_thread_for_long_are_handed_back():
    async with Ran(CONCURRENCY=10) as ran:
        make_short(ran.attempts, is_async=False)
        threads = Threads(1)
        ran.attempts.use_threads("app.model", *threads.given())
        ran.attempts.begin([FakeClaim(FakeOperations(), "awaited", forever) for _ in range(2)])
        ran.attempts.sweep()
        assert threads.handed_back[0] < time.monotonic() - 0.9 * module.PATIENCE
        assert ran.attempts._room.ahead("app.model", False, 10) == 0
        ran.attempts.release_all()
        ran.attempts.sweep()
        assert len(threads.handed_back) == 1


# Attempts that such threads make without the loop


class Whole:
    """An attempt for a thread: the handler's ``act``, of which the loop calls ``go_on`` if it raises."""

    def __init__(self, claim, go_on=None):
        self.claim, self.go_on, self.given_up = claim, go_on, threading.Event()

    def run_in_thread(self):
        act, self.claim.instance.act = self.claim.instance.act, self.go_on
        self.claim.started = time.monotonic()
        try:
            return act()
        finally:
            self.claim.finished = time.monotonic()

    def give_up(self):
        self.given_up.set()


class Making(Ran):
    """Attempts that two threads make without the loop."""

    def __init__(self, go_on=None, threads=2):
        super().__init__()
        self.made = {}
        self.pool = ThreadPool(threads, "tests-action")

        def whole(claim):
            return self.made.setdefault(id(claim), Whole(claim, go_on))

        self.attempts.use_threads("app.model", self.pool, lambda claim: True, lambda *spared: True, whole)

    async def __aexit__(self, *error):
        await super().__aexit__(*error)
        self.pool.stop()


async def test_a_slow_attempt_in_a_thread_holds_back_no_other():
    gate = threading.Event()

    def slow():
        gate.wait(PATIENCE)
        return "done"

    async with Making() as ran:
        make_short(ran.attempts, is_async=False)
        claims = [FakeClaim(FakeOperations(), "awaited", act) for act in (slow, *[lambda: "done"] * 9)]
        ran.attempts.begin(claims)
        await until(lambda: len(ran.outcomes) == 9)
        assert claims[0] not in [claim for claim, _ in ran.outcomes]
        gate.set()
        await until(lambda: len(ran.outcomes) == 10)
        assert {outcome for _, outcome in ran.outcomes} == {Moved(WorkGraph.done)}
        assert len(ran.made) == 10
        assert (ran.attempts.running, ran.attempts._room.placed, ran.attempts._room.calling["app.model"]) == ({}, 0, 0)


async def test_the_loop_goes_on_where_an_attempt_failed_in_its_thread_even_after_its_lease():
    def fail():
        claim.deadline = 0.0
        raise ValueError("in the thread")

    async def go_on():
        return "done"

    async with Making(go_on) as ran:
        claim = FakeClaim(FakeOperations(), "awaited", fail)
        ran.attempts.begin([claim])
        await until(lambda: ran.outcomes)
        assert ran.outcomes == [(claim, Moved(WorkGraph.done))]


async def test_attempts_that_have_not_begun_when_a_worker_stops_are_handed_back_and_never_begin():
    gate = threading.Event()
    async with Making(threads=1) as ran:
        make_short(ran.attempts, is_async=False)
        begun, waiting, turned = (
            FakeClaim(FakeOperations(), "awaited", act)
            for act in (lambda: gate.wait(PATIENCE) and "done", pytest.fail, pytest.fail)
        )
        ran.attempts.begin([begun, waiting])
        await until(lambda: begun.started)
        ran.attempts.begin([turned])
        ran.attempts.hand_back()
        assert ran.outcomes == [(turned, Released()), (waiting, Released())]
        gate.set()
        await until(lambda: len(ran.outcomes) == 3)
        assert ran.outcomes[2] == (begun, Moved(WorkGraph.done))


async def test_attempt_in_a_thread_that_is_given_up_counts_if_it_has_begun_and_its_answer_is_dropped():
    gate = threading.Event()
    async with Making(threads=1) as ran:
        make_short(ran.attempts, is_async=False)
        begun, waiting, other = (
            FakeClaim(FakeOperations(), "awaited", act)
            for act in (lambda: gate.wait(PATIENCE), pytest.fail, lambda: "done")
        )
        ran.attempts.begin([begun, waiting])
        await until(lambda: begun.started)
        ran.attempts.cancel_ended({id(begun), id(waiting)})
        assert ran.outcomes == [(waiting, Released()), (begun, INTERRUPTED)]
        assert all(made.given_up.is_set() for made in ran.made.values())
        gate.set()
        await until(lambda: not ran.pool.exhausted)
        ran.attempts.begin([other])
        await until(lambda: len(ran.outcomes) == 3)
        assert ran.outcomes[2] == (other, Moved(WorkGraph.done))


async def test_attempt_in_a_thread_past_its_time_is_an_error():
    gate = threading.Event()
    async with Making() as ran:
        claim = FakeClaim(FakeOperations(), "awaited", lambda: gate.wait(PATIENCE), max_runtime=5.0)
        ran.attempts.begin([claim])
        await until(lambda: claim.started)
        claim.started -= 6
        ran.attempts.sweep()
        ((_, outcome),) = ran.outcomes
        assert outcome.failure.kind == "stator.exceptions.AttemptTimedOut"
        gate.set()
