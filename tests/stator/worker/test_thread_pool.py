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
