"""Recording outcomes, refusing those that come too late, and what is counted and reported beside them."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import DatabaseError
from django.utils import timezone

from stator.db.interface import OutcomeBatch, new_token, new_worker_id
from stator.db.outcome_columns import is_written
from stator.extensions.reports import effects
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Released, Waiting
from stator.models import Report, Stats
from stator.rows.claimable import Crashes
from tests.stator.db.calling import ERROR, record, take
from tests.stator.making import ago, at_once, automatic, change, claim_all, expire, put, raw, row
from tests.testapp.basic import Step, StepGraph

pytestmark = pytest.mark.usefixtures("transactional_db")


# Recording


def test_recorded_move_enters_the_next_state_with_a_clean_slate(operations):
    step = put(Step, state_failures=2, state_next_attempt=ago(5))
    claim = take(operations, step)
    written = record(operations, (claim, Moved(StepGraph.slow)))
    found = row(step)
    assert (found.state, found.state_version, found.state_ready) == ("slow", 1, True)
    assert (found.state_attempts, found.state_failures, found.state_crashes) == (0, 0, 0)
    assert (found.state_claim, found.state_locked_until, found.state_next_attempt) == (None, None, None)
    assert found.state_attempted is None
    assert found.state_changed > step.state_changed
    assert [(move.pk, move.source, move.to) for move in written.moves] == [(step.pk, "new", "slow")]
    assert (written.failures, written.lost, written.deferred) == ([], [], [])


def test_recorded_wait_makes_the_row_due_after_its_delay(operations):
    step = put(Step, state_failures=1, state_crashes=0)
    claim = take(operations, step)
    written = record(operations, (claim, Waiting(30.0)))
    found = row(step)
    assert (found.state, found.state_version, found.state_ready, found.state_claim) == ("new", 0, False, None)
    assert (found.state_attempts, found.state_failures) == (1, 0)
    assert found.state_attempted is not None
    assert timedelta(seconds=25) < found.state_next_attempt - timezone.now() < timedelta(seconds=35)
    assert (written.moves, written.failures, written.lost) == ([], [], [])


def test_recorded_failure_counts_and_is_reported(operations):
    step = put(Step, state_failures=1, state_crashes=2)
    (claim,) = operations.claim(automatic(operations), 1, crashes=Crashes.MANY)
    written = record(operations, (claim, Waiting(30.0, ERROR)))
    # An attempt that ends at all clears the count of crashes.
    assert (row(step).state_failures, row(step).state_crashes) == (2, 0)
    assert written.failures == [(step.pk, ERROR)]
    report = Report.objects.get()
    assert (report.model_label, report.object_pk, report.state) == ("testapp.step", str(step.pk), "new")
    assert (report.error, report.message, report.fingerprint) == ("ValueError", "no", ERROR.fingerprint)
    assert (report.times, report.worker) == (1, operations.worker_id)


def test_row_that_is_released_until_later_is_due_then_and_the_attempt_is_refunded(operations):
    soon, later = put(Step, state_failures=2, state_crashes=1, state_next_attempt=ago(77)), put(Step, state_failures=1)
    claims = [claim for crashes in Crashes for claim in operations.claim(automatic(operations), 2, crashes=crashes)]
    outcomes = {soon.pk: Released(), later.pk: Released(60.0, "the database was away")}
    written = record(operations, *((claim, outcomes[claim.pk]) for claim in claims))
    was, soon, later = soon.state_next_attempt, row(soon), row(later)
    assert [(found.state_attempts, found.state_claim, found.state_changed) for found in (soon, later)] == [
        (0, None, soon.state_changed), (0, None, later.state_changed),
    ]  # fmt: skip
    assert [(found.state_failures, found.state_crashes) for found in (soon, later)] == [(2, 1), (1, 0)]
    assert (soon.state_ready, soon.state_next_attempt, soon.state_locked_until) == (True, was, None)
    assert not later.state_ready
    assert 55 < (later.state_next_attempt - later.state_attempted).total_seconds() < 120
    assert (written.moves, written.failures, written.lost) == ([], [], [])
    assert not Stats.objects.exists()
    assert Report.objects.get().message == "the database was away"


def test_row_whose_attempt_was_given_up_is_ready_again_and_the_attempt_counts(operations):
    step, other = put(Step, state_failures=2), put(Step, state_failures=1)
    begun, unbegun = claim_all(operations)
    record(operations, (begun, Released(reason="the worker was stopped", begun=True)), (unbegun, Released()))
    kept = ("state_ready", "state_claim", "state_attempts", "state_failures", "state_crashes", "state_version")
    assert raw(Step).values_list(*kept).get(pk=step.pk) == (True, None, 1, 2, 0, 0)
    assert raw(Step).values_list(*kept).get(pk=other.pk) == (True, None, 0, 1, 0, 0)
    assert Report.objects.get().message == "the worker was stopped"


def test_batch_of_different_outcomes_is_written_together(operations):
    steps = [put(Step, state_changed=ago(100 - number)) for number in range(6)]
    claims = claim_all(operations)
    done = Moved(StepGraph.done)
    outcomes = [done, Waiting(10.0), Waiting(20.0, ERROR), Released(), Moved(StepGraph.slow), done]
    written = record(operations, *zip(claims, outcomes, strict=True))
    assert [row(step).state for step in steps] == ["done", "new", "new", "new", "slow", "done"]
    assert [row(step).state_failures for step in steps] == [0, 0, 1, 0, 0, 0]
    assert sorted(move.pk for move in written.moves) == sorted(steps[number].pk for number in (0, 4, 5))
    assert not raw(Step).exclude(state_claim=None).exists()


def test_outcome_and_what_is_kept_beside_it_are_written_together_or_not_at_all(operations, monkeypatch):
    def refuse(*args):
        raise DatabaseError("the disk is full")

    steps = [put(Step), put(Step)]
    claims = claim_all(operations)
    monkeypatch.setattr(effects, "keep_reports", refuse)
    with pytest.raises(DatabaseError, match="the disk is full"):
        record(operations, *((claim, Waiting(5.0, ERROR)) for claim in claims))
    for step in steps:
        assert (row(step).state_claim, row(step).state_failures) == (claims[0].token, 0)
    assert not Stats.objects.exists()


@pytest.mark.parametrize("outcome", [Moved(StepGraph.done), Waiting(5.0, ERROR), Released(), Released(begun=True)])
def test_outcome_whose_answer_was_lost_is_found_written_when_it_is_repeated(operations, outcome):
    step = put(Step)
    claim = take(operations, step)
    once = record(operations, (claim, outcome))
    before = raw(Step).filter(pk=step.pk).values().get()
    again = operations.record_batch(OutcomeBatch.of([(claim, outcome)]), again=True)
    assert (again.lost, again.deferred) == ([], [])
    assert (again.moves, again.failures) == (once.moves, once.failures)
    assert raw(Step).filter(pk=step.pk).values().get() == before
    # Who does not say that it is repeated has lost the claim.
    assert record(operations, (claim, outcome)).lost == [claim]
    assert raw(Step).filter(pk=step.pk).values().get() == before


# Fencing


def test_outcome_after_the_lease_ran_out_but_before_anybody_noticed_is_accepted(operations):
    step = put(Step)
    claim = take(operations, step)
    expire(step)
    assert record(operations, (claim, Moved(StepGraph.done))).lost == []
    assert row(step).state == "done"


# Statistics and reports


def test_statistics_count_attempts_by_edge(operations):
    for number in range(6):
        put(Step, state_changed=ago(100 - number))
    claims = claim_all(operations)
    outcomes = [Moved(StepGraph.done)] * 3 + [Waiting(5.0), Waiting(5.0, ERROR), Moved(StepGraph.failed, ERROR)]
    record(operations, *zip(claims, outcomes, strict=True))
    counted = {(stats.source, stats.to): (stats.handled, stats.failed) for stats in Stats.objects.all()}
    assert counted == {("new", "done"): (3, 0), ("new", ""): (2, 1), ("new", "failed"): (1, 1)}
    assert Stats.get_for_model(Step).most_recent_handled() == (6, 6, 6)


def times():
    return {(stats.source, stats.to): (stats.seconds, stats.longest) for stats in Stats.objects.all()}


def test_statistics_sum_up_the_time_in_the_state_that_was_left(operations):
    for age in (1000, 100, 10, 90_000):
        put(Step, state_changed=ago(age))
    first, second, third, fourth = sorted(claim_all(operations), key=lambda claim: claim.age)
    done, failed = Moved(StepGraph.done), Moved(StepGraph.failed, ERROR)
    record(operations, (first, done), (second, Waiting(5.0, ERROR)), (third, done), (fourth, failed))
    seconds, longest = times()["new", "done"]
    assert 1010 <= seconds < 1040
    assert 1000 <= longest < 1020
    # More than a day, which PostgreSQL keeps apart from the hours.
    assert times()["new", "failed"] == pytest.approx((90_000, 90_000), abs=30)
    assert times()["new", ""] == (0, 0)
    later = put(Step, state_changed=ago(500))
    record(operations, (take(operations, later), done))
    assert times()["new", "done"][0] == pytest.approx(1510, abs=40)
    assert times()["new", "done"][1] == longest


def test_time_is_never_less_than_nothing_though_the_clock_was_set_back(operations):
    claim = take(operations, put(Step, state_changed=ago(-100)))
    record(operations, (claim, Moved(StepGraph.done)))
    assert times()["new", "done"] == (0, 0)


def test_no_count_is_lost_with_several_workers_at_once(make):
    for _ in range(60):
        put(Step)
    workers = [make() for _ in range(4)]
    for worker in workers[1:]:
        # Several workers may share a shard.
        worker.worker_id = workers[0].worker_id[:2] + worker.worker_id[2:]

    def drain(operations):
        handled, ended = 0, []
        # The claim of another worker may have a row locked for a moment; its outcome is then written with the next.
        while ended or (ended := [(claim, Moved(StepGraph.done)) for claim in claim_all(operations, 5)]):
            written = record(operations, *ended)
            handled, ended = handled + len(written.moves), written.deferred
        return handled

    assert sum(at_once(*(lambda worker=worker: drain(worker) for worker in workers))) == 60
    assert sum(Stats.objects.values_list("handled", flat=True)) == 60
    assert raw(Step).filter(state="done", state_version=1).count() == 60


def attempt_again(operations, step, outcome):
    change(step, state_ready=True, state_next_attempt=None)
    record(operations, (take(operations, step), outcome))


def test_report_counts_how_often_the_same_was_said(operations):
    step = put(Step)
    for _ in range(3):
        attempt_again(operations, step, Waiting(5.0, ERROR))
    assert Report.objects.get().times == 3
    attempt_again(operations, step, Waiting(5.0, describe(ValueError("else"))))
    assert (Report.objects.get().times, Report.objects.get().message) == (1, "else")
    # A reason to wait is reported without an error.
    for _ in range(2):
        attempt_again(operations, step, Waiting(5.0, None, "DNS not propagated"))
    report = Report.objects.get()
    assert (report.error, report.message, report.times, report.traceback) == ("", "DNS not propagated", 2, "")
    assert row(step).state_failures == 0


@pytest.mark.parametrize("count", [1, 2])
def test_report_is_committed_with_the_last_outcome_of_a_transaction_and_not_after_it(operations, count):
    steps = [put(Step) for _ in range(count)]
    claims = claim_all(operations)
    with pytest.raises(DatabaseError, match="away"), operations.handler_transaction():
        operations.record([(claim, Waiting(1.0, reason="not yet")) for claim in claims], last=True)
        raise DatabaseError("away")
    # Reports of several outcomes follow them, so the statement of these does not commit.
    committed = Report.objects.count()
    assert committed == sum(row(step).state_claim is None for step in steps)
    assert committed == 0 or count == 1


def test_report_of_whatever_was_raised_can_be_kept(operations):
    class Mute(Exception):
        def __str__(self):
            raise SystemExit

    for error in (ValueError("x" * 10**7), ValueError("\x00\ud800\x1b\u202e"), Mute()):
        step = put(Step)
        written = record(operations, (take(operations, step), Waiting(5.0, describe(error))))
        assert len(written.failures) == 1
        assert row(step).state_failures == 1
    assert Report.objects.count() == 3


# What a row tells about an outcome whose answer was lost


TOKEN = new_token(new_worker_id())
FROM, TO = StepGraph.initial_state, next(iter(StepGraph.initial_state.children))
CLAIM = SimpleNamespace(state=FROM, version=3, attempt=2)


@pytest.mark.parametrize(
    ("outcome", "state", "version", "attempts", "token", "expected"),
    [
        (Moved(TO), TO, 4, 0, None, True),
        # The next state may have been claimed before anybody looks.
        (Moved(TO), TO, 4, 1, TOKEN, True),
        (Moved(TO), TO, 5, 0, None, False),
        (Moved(TO), FROM, 3, 2, TOKEN, False),
        (Waiting(1.0), FROM, 3, 2, None, True),
        (Waiting(1.0), FROM, 3, 3, TOKEN, False),
        (Waiting(1.0), FROM, 3, 3, None, False),
        # The same attempt, still on its way: of a process that has the claim as well.
        (Waiting(1.0), FROM, 3, 2, TOKEN, False),
        (Released(), FROM, 3, 1, None, True),
        (Released(), FROM, 3, 2, TOKEN, False),
    ],
)
def test_outcome_is_found_written_in_the_row_it_left(outcome, state, version, attempts, token, expected):
    assert is_written(CLAIM, outcome, state.name, version, attempts, token) is expected


def test_state_that_is_entered_is_ready_where_it_is_attempted_at_once(operations):
    for state, ready in {"late": False, "outside": False, "done": False, "slow": True}.items():
        step = put(Step)
        record(operations, (take(operations, step), Moved(StepGraph.states[state])))
        found = row(step)
        assert found.state_ready is ready
        if state == "late":
            assert 55 < (found.state_next_attempt - timezone.now()).total_seconds() < 65


def test_outcome_that_is_repeated_for_a_row_that_others_have_claimed_since_is_lost(operations):
    step = put(Step)
    claim = take(operations, step)
    expire(step)
    operations.reap(10)
    operations.claim(automatic(operations), 1, crashes=Crashes.FEW)
    for outcome in (Moved(StepGraph.done), Waiting(5.0), Released()):
        assert operations.record_batch(OutcomeBatch.of([(claim, outcome)]), again=True).lost == [claim]
