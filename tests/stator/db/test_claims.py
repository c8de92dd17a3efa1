"""Claiming rows: which and in what order, and what a claim is known by."""

import threading
from datetime import timedelta

import pytest
from django.utils import timezone

from stator.db import chores, claims
from stator.db.interface import new_token, new_worker_id
from stator.db.probe import Work
from stator.graph.outcomes import Moved, Waiting
from stator.rows.claimable import Crashes
from stator.rows.workers import worker_of
from tests.sizes import PATIENCE
from tests.stator.db.calling import ERROR, pks, record, take, work
from tests.stator.making import (
    ago,
    at_once,
    automatic,
    change,
    claim_all,
    expire,
    locked_elsewhere,
    operations_of,
    put,
    raw,
    row,
)
from tests.testapp.basic import Step, StepGraph

pytestmark = pytest.mark.usefixtures("transactional_db")


# Claiming


def test_claim_marks_the_row_and_gives_it_with_its_claim(operations):
    step = put(Step)
    claim = take(operations, step)
    found = row(step)
    assert found.state_claim == claim.token
    assert not found.state_ready
    assert found.state_attempts == 1 == claim.attempt
    assert found.state_attempted is not None
    assert timedelta(seconds=55) < found.state_locked_until - timezone.now() < timedelta(seconds=65)
    assert claim.instance.pk == step.pk
    assert claim.instance.name == step.name
    assert claim.state is StepGraph.new
    assert worker_of(claim.token) == operations.worker_id
    # The worker's deadline is before the end of the lease.
    assert claim.claimed + 0.8 * claim.lease == claim.deadline


def test_rows_are_claimed_in_the_order_of_their_turn(operations):
    third = put(Step, state_changed=ago(10))
    second = put(Step, state_changed=ago(5000), state_next_attempt=ago(20))
    first = put(Step, state_changed=ago(30))
    moment = ago(5)
    # Those of one moment by their keys.
    last = [put(Step, state_changed=ago(5000), state_next_attempt=moment).pk for _ in range(3)]
    assert pks(claim_all(operations)) == [first.pk, second.pk, third.pk, *last]


def test_row_that_was_claimed_although_it_was_locked_is_left_to_that_claim(monkeypatch):
    """Some servers accept SKIP LOCKED and lock nothing, so that two workers pick one row."""
    mine, others = put(Step), put(Step)
    operations, pick = operations_of(Step, "portable"), claims.pick

    def pick_late(*args):
        picked = pick(*args)
        change(others, state_claim=new_token(new_worker_id()), state_ready=False)
        return picked

    monkeypatch.setattr(claims, "pick", pick_late)
    assert pks(claim_all(operations)) == [mine.pk]
    assert row(others).state_attempts == 0


def test_claim_takes_no_more_than_its_limit_and_the_oldest_first(operations):
    steps = [put(Step, state_changed=ago(100 - number)) for number in range(7)]
    assert pks(claim_all(operations, 3)) == [step.pk for step in steps[:3]]
    assert pks(claim_all(operations, 100)) == [step.pk for step in steps[3:]]
    assert claim_all(operations) == []


def test_row_that_is_claimed_not_ready_or_quarantined_is_not_claimed(operations):
    put(Step, state_claim=new_token(new_worker_id()), state_locked_until=ago(-60))
    put(Step, state_ready=False)
    put(Step, state_crashes=3)
    put(Step, state_crashes=7)
    for crashes in Crashes:
        assert operations.claim(automatic(operations), 5, crashes=crashes) == []


@pytest.mark.parametrize("crashes", Crashes)
def test_row_that_is_ready_before_its_time_is_not_claimed_and_loses_the_mark(operations, crashes):
    lost = {Crashes.NONE: 0, Crashes.FEW: 1, Crashes.MANY: 2}[crashes]
    early = put(Step, state_next_attempt=ago(-60), state_attempted=ago(7), state_crashes=lost)
    due = put(Step, state_next_attempt=ago(5), state_crashes=lost)
    claims = [claim for _ in range(3) for claim in operations.claim(automatic(operations), 5, crashes=crashes)]
    assert pks(claims) == [due.pk]
    now = row(early)
    assert (now.state_ready, now.state_claim, now.state_locked_until, now.state_attempts) == (False, None, None, 0)
    assert (now.state_next_attempt, now.state_attempted) == (early.state_next_attempt, early.state_attempted)
    assert work(operations) == Work()
    change(early, state_next_attempt=ago(1))
    assert chores.mark_ready(operations, 10) == 1


def test_row_without_a_due_time_is_claimed_though_its_state_begins_in_the_future(operations):
    """The clock was set back after the row had entered its state."""
    step = put(Step, state_changed=ago(-3600))
    assert pks(claim_all(operations)) == [step.pk]


@pytest.mark.parametrize(("max_crashes", "expected"), [(1, [1, 0, 0]), (2, [1, 0, 1]), (3, [1, 1, 1]), (4, [1, 1, 2])])
def test_rows_are_claimed_apart_by_the_leases_that_they_lost(make, max_crashes, expected):
    """In the crash that would put it into quarantine nothing else runs beside a row."""
    operations = make(MAX_CRASHES=max_crashes)
    for crashes in range(5):
        put(Step, state_crashes=crashes)
    found = work(operations)
    assert [found.ready, found.crashed, found.suspect] == [count > 0 for count in expected]
    assert [len(operations.claim(automatic(operations), 50, crashes=crashes)) for crashes in Crashes] == expected
    assert work(operations) == Work()


def test_two_workers_never_claim_one_row(make):
    for _ in range(40):
        put(Step)
    workers = [make() for _ in range(4)]
    barrier = threading.Barrier(4)

    def drain(operations):
        claims = []
        for _ in range(10):
            barrier.wait(PATIENCE)
            claims += claim_all(operations, 2)
        return claims

    came = at_once(*(lambda worker=worker: drain(worker) for worker in workers))
    claimed = [claim for claims in came for claim in claims]
    assert sorted(pks(claimed)) == sorted(raw(Step).values_list("pk", flat=True))
    assert all(found.state_attempts == 1 for found in raw(Step).all())
    assert {claim.token for claim in claimed} == set(raw(Step).values_list("state_claim", flat=True))


@pytest.mark.postgresql
def test_claim_does_not_wait_for_a_row_that_somebody_has_locked(operations):
    # SQLite locks no single rows.
    held, free = put(Step, state_changed=ago(100)), put(Step)
    with locked_elsewhere(held):
        assert pks(claim_all(operations)) == [free.pk]
    assert pks(claim_all(operations)) == [held.pk]


# Identity


def test_idempotency_key_is_stable_over_retries_and_new_on_re_entry(operations):
    step = put(Step)
    first = take(operations, step)
    record(operations, (first, Waiting(0.0, ERROR)))
    change(step, state_ready=True)
    second = take(operations, step)
    expire(step)
    operations.reap(10)
    (third,) = operations.claim(automatic(operations), 1, crashes=Crashes.FEW)
    assert first.idempotency_key == second.idempotency_key == third.idempotency_key
    assert first.idempotency_key == f"testapp.step:{step.pk}:0:new"
    assert (first.attempt, second.attempt, third.attempt) == (1, 2, 3)
    record(operations, (third, Moved(StepGraph.slow)))
    record(operations, (take(operations, step), Moved(StepGraph.new)))
    assert take(operations, step).idempotency_key == f"testapp.step:{step.pk}:2:new"
