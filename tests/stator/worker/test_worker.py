"""How a worker stops: a claim on its way arrives, and what is being written is written. Real ones: tests/faults."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from stator.conf import Settings
from stator.graph.outcomes import Moved
from stator.worker.alone import Alone
from stator.worker.attempts import Attempts
from stator.worker.dispatcher import Dispatcher, Lane, Lanes
from stator.worker.outage import reach
from stator.worker.recorder import Recorder
from stator.worker.shutdown import StopRequests, close
from stator.worker.worker import Worker
from tests.stator.worker.fakes import FakeClaim, FakeOperations, WorkGraph, until

DONE = Moved(WorkGraph.done)


class Stopping:
    """A worker with the parts that take part in its end: ``run`` sends its claims, ``written`` has its outcomes."""

    def __init__(self, run=None, lanes=(), **settings):
        self.written = []
        self.database_answers = asyncio.Event()
        self.database_answers.set()
        self.worker = worker = Worker([], Settings(**settings))
        worker._stopping, worker._begun = asyncio.Event(), asyncio.Event()
        worker._begun.set()
        worker.lanes = Lanes(lanes)
        worker.recorder = Recorder(self.write, 100, worker.suspended, worker.lanes.woken.set, worker.lanes.wake_after)
        worker.attempts = Attempts(worker.settings, worker.recorder.add, worker.recorder.note_recorded)
        worker.alone = Alone(worker.attempts.begin, worker.is_empty)
        threads = SimpleNamespace(claims=SimpleNamespace(run=run), may_claim=lambda alias: True)
        worker.dispatcher = Dispatcher(
            worker.lanes, worker.attempts, threads, worker.alone, worker.recorder, 10,
            worker.suspended,
        )  # fmt: skip
        worker.scheduler = SimpleNamespace(stop=lambda: None, soon=lambda: None)
        schema = SimpleNamespace(changes=0)
        worker.reach = partial(reach, suspended=worker.suspended, has_no_time=worker._has_no_time, tables=schema)
        self.loops = [asyncio.create_task(loop) for loop in (worker._claim_loop(), worker._record_loop())]

    async def write(self, function, operations, batch, *, again):
        await self.database_answers.wait()
        self.written += batch.ended
        return batch.accepted()

    def stop(self):
        """Tell the worker to stop; return what is over once it has."""
        self.worker.stop()
        return asyncio.create_task(self.worker._shut_down(self.loops))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.worker.attempts.stop()


async def test_claim_that_is_on_its_way_arrives_before_the_worker_ends():
    sent, answer = asyncio.Event(), asyncio.Event()
    operations = FakeOperations(ready=3)

    async def run(function, *args, **kwargs):
        claims = function(*args, **kwargs)
        sent.set()
        await answer.wait()
        return claims

    async with Stopping(run, [Lane(operations, [WorkGraph.called], False, 1)]) as stopping:
        await sent.wait()
        stopped = stopping.stop()
        # A worker that did not wait would be done by now: nothing runs, and nothing is left to be recorded.
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopped.done()
        answer.set()
        await stopped
        # Each was handed back, or had begun and could finish.
        assert len({id(claim) for claim, _ in stopping.written}) == len(stopping.written) == 3
        assert not stopping.worker.recorder.held
        assert not stopping.worker.attempts.running


async def test_outcome_that_is_being_written_is_written_before_the_worker_ends():
    async with Stopping(SHUTDOWN_TIMEOUT=3) as stopping:
        claim = FakeClaim(FakeOperations())
        stopping.database_answers.clear()
        stopping.worker.recorder.add(claim, DONE)
        stopped = stopping.stop()
        asyncio.get_running_loop().call_later(0.2, stopping.database_answers.set)
        await stopped
        assert stopping.written == [(claim, DONE)]


async def test_claim_is_renewed_until_its_outcome_is_written():
    async with Stopping() as stopping:
        claim = FakeClaim(FakeOperations())
        stopping.worker.recorder.add(claim, DONE)
        assert stopping.worker.claims() == [claim]
        await until(lambda: stopping.written)
        assert stopping.worker.claims() == []


# How often a worker was asked to stop, by which of its signals


@pytest.mark.parametrize(
    ("counts", "stops"),
    [
        pytest.param([None, None], [1, 2], id="without a supervisor each counts"),
        pytest.param([0, 1], [1, 1], id="to the group: directly, then by the supervisor"),
        pytest.param([1, 1], [1, 1], id="to the group: the supervisor was quicker"),
        pytest.param([0, 1, 1, 2], [1, 1, 1, 2], id="to the group twice"),
        pytest.param([0, 0], [1, 1], id="directly alone"),
        pytest.param([1, 2], [1, 2], id="by the supervisor twice"),
        pytest.param([2], [2], id="by the supervisor twice, merged into one"),
        pytest.param([1, None], [1, 2], id="the supervisor was killed meanwhile"),
    ],
)
def test_signal_counts_once_whichever_way_it_comes(counts, stops):
    stopped, count = [], [None]
    signals = StopRequests(lambda: stopped.append(1), lambda: count[0])
    told = []
    for each in counts:
        count[0] = each
        signals.hear()
        told.append(len(stopped))
    assert told == stops


def test_worker_that_has_no_supervisor_counts_its_signals():
    stopped = []
    signals = StopRequests(lambda: stopped.append(1))
    signals.hear(), signals.hear()
    assert len(stopped) == 2


def test_tasks_that_handlers_left_running_are_cancelled_before_their_loop_is_closed():
    loop, ended = asyncio.new_event_loop(), []

    async def wait_for_ever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    left = loop.create_task(wait_for_ever())
    loop.run_until_complete(asyncio.sleep(0))
    close(loop)
    assert (ended, left.cancelled(), loop.is_closed()) == (["cancelled"], True, True)
