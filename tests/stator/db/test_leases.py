"""Leases: renewed, extended, held, reaped once they have run out, and given back."""

import pytest
from django.utils import timezone

from stator.db import chores
from stator.db.probe import Work
from stator.models import Report
from stator.rows.claimable import Crashes
from tests.stator.db.calling import pks, take, work
from tests.stator.making import ago, at_once, automatic, change, claim_all, expire, locked_elsewhere, put, raw, row
from tests.testapp.basic import Step

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_state_may_have_a_lease_of_its_own_and_each_is_renewed_by_its_length(operations):
    def lengths():
        return [(row(claim.instance).state_locked_until - timezone.now()).total_seconds() for claim in claims]

    put(Step, state_changed=ago(1))
    put(Step, state="slow")
    claims = claim_all(operations)
    assert [claim.lease for claim in claims] == [60, 600]
    assert lengths() == pytest.approx([60, 600], abs=40)
    raw(Step).update(state_locked_until=ago(-5))
    assert operations.renew(claims) == set()
    assert lengths() == pytest.approx([60, 600], abs=40)


def test_renewing_tells_which_claims_have_ended(operations):
    for _ in range(3):
        put(Step)
    claims = claim_all(operations)
    raw(Step).get(pk=claims[0].pk).transition_perform("slow")
    raw(Step).filter(pk=claims[2].pk).delete()
    assert operations.renew(claims) == {id(claims[0]), id(claims[2])}


@pytest.mark.postgresql
def test_renewing_passes_over_a_locked_row_without_giving_it_up(operations):
    step = put(Step)
    claim = take(operations, step)
    with locked_elsewhere(step):
        assert operations.renew([claim]) == set()


def test_claim_is_held_until_its_lease_runs_out_or_it_ends(operations):
    step = put(Step)
    claim = take(operations, step)
    assert operations.holds(claim)
    assert claim.still_mine()
    expire(step)
    assert not operations.holds(claim)
    change(step, state_locked_until=ago(-60))
    step.transition_perform("slow")
    assert not claim.still_mine()


def test_extended_lease_lasts_and_lets_the_attempt_run(operations):
    step = put(Step)
    claim = take(operations, step)
    claim.started = claim.claimed
    assert claim.extend(1000)
    assert (row(step).state_locked_until - timezone.now()).total_seconds() == pytest.approx(1000, abs=40)
    assert claim.max_runtime == 3600
    assert claim.deadline > claim.claimed + 700

    # One of a day is not taken for a clock that was set back.
    assert claim.extend(86400)
    assert operations.reap(10) == []
    assert claim.still_mine()
    assert claim.max_runtime >= 86400
    assert claim.deadline - claim.claimed < (row(step).state_locked_until - timezone.now()).total_seconds()


def test_claim_is_extended_by_a_time_only(operations):
    step = put(Step)
    claim = take(operations, step)
    until = row(step).state_locked_until
    for seconds in (0, -5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"extend\(\) takes a number of seconds above 0"):
            claim.extend(seconds)
    assert row(step).state_locked_until == until


def test_reaped_row_is_ready_and_its_crash_counted(operations):
    step = put(Step, state_next_attempt=ago(5), state_failures=1)
    claim = take(operations, step)
    expire(step)
    assert operations.reap(10) == [(step.pk, operations.worker_id)]
    found = row(step)
    assert (found.state_ready, found.state_claim, found.state_locked_until) == (True, None, None)
    assert (found.state_crashes, found.state_attempts, found.state_failures) == (1, 1, 1)
    assert (found.state, found.state_version) == ("new", 0)
    assert operations.reap(10) == []
    assert not claim.still_mine()


def test_reaping_is_bounded_and_begins_with_the_lease_that_ended_first(operations):
    steps = [put(Step) for _ in range(5)]
    claim_all(operations)
    for number, step in enumerate(steps):
        change(step, state_locked_until=ago(10 + number))
    assert sorted(pk for pk, _ in operations.reap(2)) == [steps[3].pk, steps[4].pk]
    assert len(operations.reap(10)) == 3


def crash(operations, step, crashes):
    assert pks(operations.claim(automatic(operations), 1, crashes=crashes)) == [step.pk]
    expire(step)
    operations.reap(10)


def test_row_that_loses_too_many_leases_is_quarantined_visibly_until_somebody_retries(operations, make):
    step = put(Step)
    for crashes in Crashes:
        crash(operations, step, crashes)
    assert row(step).state_crashes == 3
    assert not row(step).state_ready
    assert [operations.claim(automatic(operations), 1, crashes=crashes) for crashes in Crashes] == [[], [], []]
    assert chores.mark_ready(operations, 10) == 0
    assert work(operations) == Work()
    assert list(Step.stator.quarantined()) == list(Step.stator.failed()) == [step]
    report = Report.objects.get()
    assert (report.error, report.object_pk, report.worker) == ("stator.Quarantined", str(step.pk), operations.worker_id)
    assert "3 leases in a row ran out" in report.message
    assert Step.stator.filter(pk=step.pk).retry() == 1
    # Until an attempt ends, it is attempted alone.
    assert claim_all(operations) == []
    assert operations.claim(automatic(operations), 1, crashes=Crashes.MANY)
    # How many are too many is a setting.
    other = put(Step)
    crash(make(MAX_CRASHES=1), other, Crashes.NONE)
    assert not row(other).state_ready


def test_lease_further_away_than_any_lease_can_be_is_reaped_for_the_clock_was_set_back(operations):
    step = put(Step)
    take(operations, step)
    change(step, state_locked_until=ago(-86400))
    assert work(operations) == Work(expired=True)
    assert [pk for pk, _ in operations.reap(10)] == [step.pk]


def test_row_is_reaped_once_by_whoever_comes_first(make):
    for _ in range(20):
        put(Step)
    claim_all(make())
    raw(Step).update(state_locked_until=ago(1))
    workers = [make() for _ in range(3)]
    came = at_once(*(lambda worker=worker: worker.reap(100) for worker in workers))
    assert sum(len(reaped) for reaped in came) == 20
    assert set(raw(Step).values_list("state_crashes", flat=True)) == {1}


def test_rows_of_a_claim_whose_answer_was_lost_are_handed_back_by_its_token(operations):
    mine, other = put(Step, state_changed=ago(5)), put(Step)
    (claim,) = claim_all(operations, 1)
    claim_all(operations, 1)
    assert operations.release_token(claim.token) == 1
    assert operations.release_token(claim.token) == 0
    assert (row(mine).state_ready, row(mine).state_attempts, row(mine).state_claim) == (True, 0, None)
    assert row(other).state_claim is not None


def test_claim_that_others_have_taken_over_is_neither_held_nor_extended_nor_renewed(make):
    step, late, other = put(Step), make(), make()
    claim = take(late, step)
    expire(step)
    other.reap(10)
    (second,) = other.claim(automatic(other), 1, crashes=Crashes.FEW)
    assert not claim.still_mine()
    assert not claim.extend(100)
    until = row(step).state_locked_until
    assert late.renew([claim]) == {id(claim)}
    assert row(step).state_locked_until == until
    assert second.still_mine()
