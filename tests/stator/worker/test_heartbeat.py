"""Leases are extended by age, and only of what may still run."""

import threading
import time
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from stator.worker.heartbeat import UNRECORDED, Heartbeat, interval_for
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import FakeClaim, FakeOperations, elsewhere, lock_timeout


class Locked(FakeOperations):
    """A table that somebody has locked: renewals wait in vain."""

    def __init__(self, label):
        super().__init__(label)
        self.waits = []

    def renew(self, claims, *, wait):
        self.waits.append(wait)
        raise lock_timeout()


def hopeless_heartbeat(unrecorded, patience, told):
    heartbeat = Heartbeat(
        list, list, 60.0, aliases=["default"], unrecorded=lambda: unrecorded,
        handed_back=told.append, patience=patience,
    )  # fmt: skip
    heartbeat.is_connected = lambda alias: True
    return heartbeat


class Recording(FakeOperations):
    """Keeps what is recorded."""

    def record(self, ended):
        self.recorded += ended


def beat(*claims):
    """The ids that were told to have ended."""
    told = []
    Heartbeat(lambda: list(claims), told.append, 1.0).beat()
    return told


def claim_of_age(seconds, operations=None, **attributes):
    """A claim whose lease was taken so many seconds ago."""
    claim = FakeClaim(operations or FakeOperations(), **attributes)
    claim.deadline = time.monotonic() - seconds + 0.8 * claim.lease
    return claim


@pytest.mark.parametrize(("age", "renewed"), [(1, False), (19, False), (21, True), (59, True), (90, True)])
def test_lease_is_renewed_once_a_third_of_it_is_over(age, renewed):
    claim = claim_of_age(age)
    beat(claim)
    assert bool(claim.operations.renewed) is renewed


@pytest.mark.parametrize("columns", [{"max_runtime": 5.0, "started": -6.0}, {"cancelled_for": "lease"}])
def test_attempt_past_its_time_or_without_its_lease_is_renewed_no_more(columns):
    if "started" in columns:
        columns = {**columns, "started": time.monotonic() + columns["started"]}
    claim = claim_of_age(30, **columns)
    beat(claim)
    assert claim.operations.renewed == []


def test_ended_claims_are_reported_and_their_deadline_stays():
    ended, other = (claim_of_age(30, operations) for operations in [FakeOperations()] * 2)
    ended.operations.ended = {ended}
    before = ended.deadline
    assert beat(ended, other) == [{id(ended)}]
    assert ended.deadline == before
    # Whenever its attempt ends: the lease had not run out.
    ended.deadline = time.monotonic() - 100
    assert ended.ended_in_time
    assert 18 < other.deadline - time.monotonic() <= 48


@pytest.mark.parametrize(
    ("leases", "interval"), [([60], 5.0), ([60, 3], 0.25), ([0.5], 0.05), ([0.1], 0.05), ([], 5.0)]
)
def test_beats_come_several_times_before_a_third_of_the_shortest_lease(leases, interval):
    assert interval_for(leases) == interval


def test_database_that_is_away_does_not_keep_leases_of_another_from_being_renewed(monkeypatch):
    away, other = elsewhere(FakeOperations()), FakeOperations()
    asked = []

    def down(claims, *, wait):
        asked.append(claims)
        raise OperationalError("down")

    monkeypatch.setattr(away, "renew", down)
    claims = [claim_of_age(30, operations) for operations in (away, elsewhere(FakeOperations()), other)]
    before = claims[0].deadline
    with pytest.raises(OperationalError, match="down"):
        beat(*claims)
    # Of the one that is away no more is asked; the worker stops what is past its own deadline.
    assert asked == [[claims[0]]]
    assert claims[1].operations.renewed == []
    assert other.renewed == [[claims[2]]]
    assert claims[0].deadline == before < claims[2].deadline


@pytest.mark.parametrize("error", [OperationalError("down"), TypeError("an argument that this driver does not have")])
def test_neither_an_outage_nor_any_other_error_ends_the_thread(error):
    asked, shown = [], []

    def down():
        asked.append(1)
        raise error

    presence = SimpleNamespace(show=down, leave=lambda: shown.append("left"))
    heartbeat = Heartbeat(down, lambda ended: None, 0.001, [presence])
    heartbeat.start()
    wait_until(lambda: len(asked) > 12)
    heartbeat.stop(PATIENCE)
    assert shown == ["left"]


def test_worker_shows_itself_before_the_first_pause():
    shown = threading.Event()
    heartbeat = Heartbeat(list, list, PATIENCE, [SimpleNamespace(show=shown.set, leave=lambda: None)])
    heartbeat.start()
    assert shown.wait(PATIENCE / 2)
    heartbeat.stop(PATIENCE)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_connection_is_open_from_the_start_and_opened_again():
    told = []
    presence = SimpleNamespace(show=lambda: None, leave=lambda: None)
    heartbeat = Heartbeat(list, list, 0.01, [presence], aliases=["default"], connected=lambda: told.append(1))
    assert not heartbeat.is_connected("default")
    heartbeat.start()
    wait_until(lambda: told == [1])
    assert heartbeat.is_connected("default")
    heartbeat.connections["default"].connection.close()
    wait_until(lambda: told == [1, 1])
    heartbeat.stop(PATIENCE)
    assert not heartbeat.is_connected("default")


def test_nothing_is_handed_back_in_a_database_that_the_heartbeat_has_only_just_reached():
    """It was away for all of the worker, which will record what it holds."""
    operations, told = Recording(), []
    heartbeat = hopeless_heartbeat({"default": [FakeClaim(operations)]}, 0.05, told)
    heartbeat.is_connected = lambda alias: False
    heartbeat.beat()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 0.1)
    heartbeat.is_connected = lambda alias: True
    heartbeat.beat()
    assert operations.recorded == []


def test_models_that_are_locked_come_last_and_keep_no_other_from_being_renewed():
    others = [FakeOperations("app.other")]
    locked = [Locked(f"app.locked{number}") for number in range(3)]
    claims = [claim_of_age(30, operations) for operations in (*locked, *others)]
    before = claims[0].deadline
    beat(*claims)
    assert claims[0].deadline == before < claims[-1].deadline
    # All together, whatever each of them costs.
    assert sum(wait for operations in locked for wait in operations.waits) <= claims[0].lease / 3
    asked = []
    for operations in (*locked, *others):
        operations.renew = lambda claims, wait: asked.append(claims[0].operations) or set()
    beat(*[claim_of_age(30, operations) for operations in (*locked, *others)])
    assert asked == [*others, *locked]


def test_what_cannot_be_recorded_is_handed_back_once_patience_is_over():
    operations, told = Recording(), []
    claims = [FakeClaim(operations) for _ in range(2)]
    patient = hopeless_heartbeat({"default": claims}, 60.0, told)
    for _ in range(2):
        patient.beat()
    assert (operations.recorded, told) == ([], [])
    hopeless_heartbeat({"default": claims}, 0.0, told).beat()
    assert operations.recorded == [(claim, UNRECORDED) for claim in claims]
    assert told == [{id(claim) for claim in claims}]
