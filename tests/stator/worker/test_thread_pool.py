"""Threads that run handlers: there are as many as are needed, and none keeps a connection when it ends."""

import threading

import pytest
from django.db import connections

from stator.worker.thread_pool import Call, ThreadPool
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import until

COUNT = 4


class Handlers(ThreadPool):
    """Each claim is an event for which its handler waits, connected to the database."""

    def __init__(self):
        super().__init__(COUNT, "handler")
        self.done, self.begun, self.connections = [], [], {}

    def handle_all(self, claims):
        self.submit([Call(self.handle, claim, lambda call: self.done.append(call.argument)) for claim in claims])

    def handle(self, claim):
        own = self.connections[threading.get_ident()] = connections["default"]
        own.ensure_connection()
        self.begun.append(claim)
        assert claim.wait(PATIENCE)

    @property
    def connected(self):
        return sum(each.connection is not None for each in self.connections.values())

    def settle(self):
        """Have two spans of time be over."""
        for _ in range(2):
            self._until = 0.0
            self.rest()


@pytest.fixture
def handlers(transactional_db):
    """Made on the event loop."""
    made = []

    def make():
        made.append(Handlers())
        return made[0]

    yield make
    threads = list(made[0].threads)
    made[0].stop()
    made[0].join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert made[0].connected == 0


async def test_there_are_as_many_threads_as_claims_at_once(handlers):
    handlers = handlers()
    for count in range(3):
        handlers.handle_all([threading.Event()])
        await until(lambda count=count: len(handlers.begun) == count + 1)
        assert len(handlers.threads) == handlers.connected == count + 1
    handlers.handle_all([threading.Event() for _ in range(10)])
    await until(lambda: len(handlers.begun) == COUNT)
    assert len(handlers.threads) == COUNT
    waiting = handlers.take_back()
    assert len(waiting) == 9
    for claim in handlers.begun:
        claim.set()
    await until(lambda: len(handlers.done) == COUNT)


async def test_threads_that_are_not_needed_end_without_connections_until_they_are(handlers):
    handlers = handlers()
    for _ in range(2):
        claims = [threading.Event() for _ in range(COUNT)]
        handlers.handle_all(claims)
        await until(lambda claims=claims: handlers.begun[-COUNT:] and set(claims) <= set(handlers.begun))
        assert handlers.connected == COUNT
        for claim in claims:
            claim.set()
        await until(lambda claims=claims: set(claims) <= set(handlers.done))
        handlers.settle()
        await until(lambda: not handlers.threads)
        assert handlers.connected == 0


async def test_idle_threads_end_at_once_when_a_worker_stops_and_busy_ones_go_on(handlers):
    handlers = handlers()
    claims = [threading.Event() for _ in range(COUNT)]
    handlers.handle_all(claims)
    await until(lambda: len(handlers.begun) == COUNT)
    for claim in claims[1:]:
        claim.set()
    await until(lambda: len(handlers.done) == COUNT - 1)
    handlers.rest(at_once=True)
    await until(lambda: len(handlers.threads) == 1)
    assert handlers.connected == 1
    claims[0].set()
    await until(lambda: len(handlers.done) == COUNT)


async def test_thread_that_is_needed_now_and_then_stays(handlers):
    handlers = handlers()
    handlers.handle_all([threading.Event() for _ in range(COUNT)])
    await until(lambda: len(handlers.begun) == COUNT)
    for claim in handlers.begun:
        claim.set()
    await until(lambda: len(handlers.done) == COUNT)
    for number in range(3):
        claim = threading.Event()
        claim.set()
        handlers.handle_all([claim])
        await until(lambda number=number: len(handlers.done) == COUNT + number + 1)
        handlers._until = 0.0
        handlers.rest()
    await until(lambda: len(handlers.threads) == handlers.connected == 1)


async def test_what_comes_while_threads_are_told_to_end_is_run(handlers):
    handlers = handlers()
    gates = [threading.Event() for _ in range(COUNT)]
    handlers.handle_all(gates)
    await until(lambda: len(handlers.begun) == COUNT)
    for gate in gates:
        gate.set()
    await until(lambda: len(handlers.done) == COUNT)
    for _ in range(50):
        handlers.settle()
        claims = [threading.Event() for _ in range(COUNT)]
        handlers.handle_all(claims)
        for claim in claims:
            claim.set()
    await until(lambda: len(handlers.done) == 51 * COUNT)
