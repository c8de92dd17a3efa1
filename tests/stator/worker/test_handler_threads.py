"""Threads that run handlers: as many are awake as are needed, and those that sleep have no connections."""

import threading

import pytest
from django.db import connections

from stator.worker.handler_threads import HandlerThreads
from tests.stator.worker.fakes import on_loop, until

COUNT = 4


class Handlers(HandlerThreads):
    """Each claim is an event for which its handler waits, connected to the database."""

    def __init__(self):
        super().__init__(COUNT, self.handle, lambda claim, result: self.done.append(claim))
        self.done, self.begun, self.connections = [], [], {}

    def handle(self, claim):
        own = self.connections[threading.get_ident()] = connections["default"]
        own.ensure_connection()
        self.begun.append(claim)
        assert claim.wait(10)

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
        made[0].start()
        return made[0]

    yield make
    made[0].stop()
    made[0].join(30)
    assert not any(thread.is_alive() for thread in made[0]._threads)
    assert made[0].connected == 0


@pytest.mark.django_db(transaction=True)
@on_loop
async def test_as_many_threads_are_awake_as_there_are_claims_at_once(handlers):
    handlers = handlers()
    for count in range(3):
        handlers.submit([threading.Event()])
        await until(lambda count=count: len(handlers.begun) == count + 1)
        assert handlers._awake == handlers.connected == count + 1
    handlers.submit([threading.Event() for _ in range(10)])
    await until(lambda: len(handlers.begun) == COUNT)
    assert handlers._awake == COUNT
    waiting = handlers.take_back()
    assert len(waiting) == 9
    for claim in handlers.begun:
        claim.set()
    await until(lambda: len(handlers.done) == COUNT)


@pytest.mark.django_db(transaction=True)
@on_loop
async def test_threads_that_are_not_needed_sleep_without_connections_until_they_are(handlers):
    handlers = handlers()
    for _ in range(2):
        claims = [threading.Event() for _ in range(COUNT)]
        handlers.submit(claims)
        await until(lambda claims=claims: handlers.begun[-COUNT:] and set(claims) <= set(handlers.begun))
        assert handlers.connected == COUNT
        for claim in claims:
            claim.set()
        await until(lambda claims=claims: set(claims) <= set(handlers.done))
        handlers.settle()
        await until(lambda: handlers.connected == 0)
        assert handlers._awake == 0


@pytest.mark.django_db(transaction=True)
@on_loop
async def test_thread_that_is_needed_now_and_then_stays_awake(handlers):
    handlers = handlers()
    handlers.submit([threading.Event() for _ in range(COUNT)])
    await until(lambda: len(handlers.begun) == COUNT)
    for claim in handlers.begun:
        claim.set()
    await until(lambda: len(handlers.done) == COUNT)
    for number in range(3):
        claim = threading.Event()
        claim.set()
        handlers.submit([claim])
        await until(lambda number=number: len(handlers.done) == COUNT + number + 1)
        handlers._until = 0.0
        handlers.rest()
    # A thread is counted as asleep before it has closed its connection.
    await until(lambda: handlers._awake == handlers.connected == 1)


@pytest.mark.django_db(transaction=True)
@on_loop
async def test_what_comes_while_threads_are_told_to_sleep_is_run(handlers):
    handlers = handlers()
    gates = [threading.Event() for _ in range(COUNT)]
    handlers.submit(gates)
    await until(lambda: len(handlers.begun) == COUNT)
    for gate in gates:
        gate.set()
    await until(lambda: len(handlers.done) == COUNT)
    for _ in range(50):
        handlers.settle()
        claims = [threading.Event() for _ in range(COUNT)]
        handlers.submit(claims)
        for claim in claims:
            claim.set()
    await until(lambda: len(handlers.done) == 51 * COUNT)
