"""Stand-ins for what the parts of a worker are given: no database, no clock that has to be waited for."""

import asyncio
import time
from types import SimpleNamespace
from uuid import uuid4

from django.db import OperationalError

from stator.capabilities import SQLITE
from stator.conf import Settings
from stator.db.conditions import Conditions
from stator.db.division import Undivided
from stator.db.interface import Claim, Stopping
from stator.db.locks import WAIT, Locks
from stator.db.suspensions import Suspensions
from stator.graph import State, StateGraph
from stator.graph.outcomes import Moved
from stator.rows.claimable import Crashes
from stator.scopes import Scope
from tests.sizes import PATIENCE


class WorkGraph(StateGraph):
    """One state for each manner of handler."""

    called = State(try_interval=1, force_initial=True)
    awaited = State(try_interval=1)
    done = State()

    called.transitions_to(done, awaited)
    awaited.transitions_to(done)

    @classmethod
    def handle_called(cls, instance):
        return instance.act()

    @classmethod
    async def handle_awaited(cls, instance):
        return await instance.act()


class FakeClaim:
    """The part of a claim that the parts of a worker read."""

    def __init__(self, operations, state="called", act=None, **attributes):
        self.operations = operations
        self.state = WorkGraph.states[state]
        self.pk, self.token = uuid4().int, uuid4()
        self.instance = SimpleNamespace(act=act or (lambda: "done"), pk=self.pk)
        self.lease, self.max_runtime, self.version, self.attempt, self.failures = 60.0, 3600.0, 0, 1, 0
        self.claimed = time.monotonic()
        self.age, self.started, self.finished = 0.0, 0.0, 0.0
        self.kept = {}
        self.deadline = self.claimed + 48.0
        for name, value in ({"heartbeat": attributes.get("lease", 60.0) / 3} | attributes).items():
            setattr(self, name, value)

    preparing, duration, free, ended_in_time = Claim.preparing, Claim.duration, Claim.free, Claim.ended_in_time
    may_begin, unfinished = Claim.may_begin, Claim.unfinished
    cancelled_for, unreadable = Claim.cancelled_for, Claim.unreadable
    own_end, taken_back, gone = Claim.own_end, Claim.taken_back, Claim.gone


class FakeOperations:
    """Rows in a list: each claim takes the first; outcomes are kept."""

    graph, alias, worker_id, lacking = WorkGraph, "default", "0" * 12, ""
    capabilities = SQLITE
    conditions = Conditions(())

    @property
    def scope(self):
        return Scope(self.alias)

    entries = frozenset()
    keeping = frozenset()
    part = None
    followers = wakers = ()
    waking = frozenset({"called", "awaited"})
    # Nothing is in shadow.
    state_field = SimpleNamespace(left=frozenset())

    def __init__(self, label="app.model", ready=0, crashed=0, suspects=0, state="called"):
        self.label, self.state = label, state
        self.left = {Crashes.NONE: ready, Crashes.FEW: crashed, Crashes.MANY: suspects}
        self.asked, self.released, self.recorded, self.renewed = [], [], [], []
        self.ended = set()
        self.settings = Settings()
        self.locks = Locks(label, WAIT)
        self.suspended = Suspensions()
        self.model = type("Model", (), {})
        self.stopping = Stopping()
        self.division = Undivided(self)
        self.parts, self.parts_with = self.division.parts, self.division.parts_with

    @property
    def ready(self):
        return self.left[Crashes.NONE]

    @ready.setter
    def ready(self, count):
        self.left[Crashes.NONE] = count

    def claim(self, states, limit, *, token, crashes=Crashes.NONE):
        self.asked.append((limit, crashes))
        count = min(limit, self.left[crashes])
        self.left[crashes] -= count
        return [FakeClaim(self, self.state, token=token) for _ in range(count)]

    def release_token(self, token):
        self.released.append(token)

    def renew(self, claims, *, wait):
        self.renewed.append(list(claims))
        return {id(claim) for claim in claims if claim in self.ended}


def lock_timeout():
    """The error of a statement that waited in vain for a lock."""
    error = OperationalError("canceling statement due to lock timeout")
    error.__cause__ = Exception()
    error.__cause__.sqlstate = "55P03"
    return error


def node_away():
    """The error of a server that cannot reach the node with the rows."""
    error = OperationalError("connection to the remote node failed")
    error.__cause__ = Exception()
    error.__cause__.sqlstate, error.__cause__.diag = "08006", SimpleNamespace(severity_nonlocalized="ERROR")
    return error


def elsewhere(operations, alias="other"):
    """The same operations on another database."""
    operations.alias = alias
    return operations


async def at_once(function, *args, **kwargs):
    """In place of a database thread."""
    return function(*args, **kwargs)


async def until(condition):
    """Let the loop turn until something holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0)


def moved(claim):
    return Moved(WorkGraph.done)
