"""Attempts whose asynchronous handlers call their code in threads."""

import time

from stator.graph.outcomes import Released
from stator.worker import attempts as module
from tests.stator.worker.fakes import FakeClaim, FakeOperations, on_loop, until
from tests.stator.worker.test_attempts import Ran, forever, make_short
from tests.stator.worker.test_room import Threads


@on_loop
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


@on_loop
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


@on_loop
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
