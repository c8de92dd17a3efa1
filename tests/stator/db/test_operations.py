"""The statements on rows. This suite knows their interface alone and runs for every implementation there is here."""

import threading
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from stator.db import base, chores
from stator.db.claim import Crashes, new_token, new_worker_id
from stator.db.look import Work, look
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Released, Waiting
from stator.models import Depth, History, Report, Stats
from stator.rows.workers import worker_of
from stator.signals import transitioned
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
from tests.testapp.basic import Diary, Rest, RestGraph, Step, StepGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

ERROR = describe(ValueError("no"))


@pytest.fixture(params=["vendor", "portable"])
def make(request):
    """Makes operations on a model, each as of a worker of its own."""
    return lambda model=Step, **settings: operations_of(model, request.param, **settings)


@pytest.fixture
def operations(make):
    return make()


def pks(claims):
    return [claim.pk for claim in claims]


def take(operations, instance):
    """Claim this row, the only one that is ready."""
    (claim,) = claim_all(operations)
    assert claim.pk == instance.pk
    return claim


def work(operations):
    return look(operations)[operations]


def record(operations, *ended):
    return operations.record(list(ended))


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


def test_rows_are_claimed_in_the_order_of_their_turn(operations):
    third = put(Step, state_changed=ago(10))
    second = put(Step, state_changed=ago(5000), state_next_attempt=ago(20))
    first = put(Step, state_changed=ago(30))
    last = put(Step, state_changed=ago(5000), state_next_attempt=ago(5))
    assert pks(claim_all(operations)) == [first.pk, second.pk, third.pk, last.pk]


def test_rows_of_one_moment_are_claimed_in_the_order_of_their_keys(operations):
    moment = ago(10)
    steps = [put(Step, state_changed=moment) for _ in range(5)]
    assert pks(claim_all(operations)) == [step.pk for step in steps]


def test_claim_takes_no_more_than_its_limit_and_the_oldest_first(operations):
    steps = [put(Step, state_changed=ago(100 - number)) for number in range(7)]
    assert pks(claim_all(operations, 3)) == [step.pk for step in steps[:3]]
    assert pks(claim_all(operations, 100)) == [step.pk for step in steps[3:]]
    assert claim_all(operations) == []


def test_each_claim_statement_has_a_token_of_its_own(operations):
    put(Step)
    put(Step)
    first, second = claim_all(operations, 1), claim_all(operations, 1)
    assert first[0].token != second[0].token


def test_token_may_be_given_so_that_it_is_known_when_the_answer_is_lost(operations):
    put(Step)
    token = new_token(operations.worker_id)
    assert operations.claim(automatic(operations), 5, token=token)[0].token == token


def test_row_that_is_claimed_not_ready_or_quarantined_is_not_claimed(operations):
    put(Step, state_claim=new_token(new_worker_id()), state_locked_until=ago(-60))
    put(Step, state_ready=False)
    put(Step, state_crashes=3)
    put(Step, state_crashes=7)
    for crashes in Crashes:
        assert operations.claim(automatic(operations), 5, crashes=crashes) == []


def test_quarantined_row_is_not_claimed_in_any_manner(operations):
    put(Step, state_crashes=operations.settings.MAX_CRASHES)
    assert [operations.claim(automatic(operations), 5, crashes=crashes) for crashes in Crashes] == [[], [], []]


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
    """As one whose clock was set back since."""
    step = put(Step, state_changed=ago(-3600))
    assert pks(claim_all(operations)) == [step.pk]


def test_only_the_states_asked_for_are_claimed(operations):
    put(Step)
    slow = put(Step, state="slow")
    assert pks(operations.claim([StepGraph.slow], 5)) == [slow.pk]


def test_state_unknown_to_the_code_is_neither_claimed_nor_marked_nor_timed_out(operations):
    strange = put(Step, state_changed=ago(10**6))
    change(strange, state="of tomorrow")
    before = row(strange).__dict__ | {"_state": None}
    assert claim_all(operations) == []
    assert chores.mark_ready(operations, 5) == 0
    change(strange, state_ready=False)
    assert chores.mark_ready(operations, 5) == 0
    assert chores.time_out(operations, 5).count == 0
    assert chores.delete_due(operations, 5) == 0
    change(strange, state_ready=True)
    assert row(strange).__dict__ | {"_state": None} == before


@pytest.mark.parametrize("state", ["outside", "done", "failed"])
def test_state_that_nothing_attempts_is_not_claimed(operations, state):
    put(Step, state=state)
    assert claim_all(operations) == []
    assert work(operations) == Work()


def test_name_of_a_state_is_only_ever_a_value(operations):
    hostile = "'; DROP TABLE testapp_step; -- %s {} \" \\"
    step = put(Step)
    change(step, state=hostile)
    assert claim_all(operations) == []
    assert raw(Step).filter(state=hostile).count() == 1


@pytest.mark.parametrize(
    ("max_crashes", "expected"),
    [(1, [1, 0, 0]), (2, [1, 0, 1]), (3, [1, 1, 1]), (4, [1, 1, 2])],
)
def test_rows_are_claimed_apart_by_the_leases_that_they_lost(make, max_crashes, expected):
    """In the crash that would put it into quarantine nothing else runs beside a row."""
    operations = make(MAX_CRASHES=max_crashes)
    for crashes in range(5):
        put(Step, state_crashes=crashes)
    found = work(operations)
    assert [found.ready, found.crashed, found.suspect] == [count > 0 for count in expected]
    assert [len(operations.claim(automatic(operations), 50, crashes=crashes)) for crashes in Crashes] == expected
    assert work(operations) == Work()


def test_state_may_have_a_lease_of_its_own(operations):
    put(Step, state_changed=ago(1))
    put(Step, state="slow")
    short, long = claim_all(operations)
    assert (short.lease, long.lease) == (60, 600)
    lengths = [row(claim.instance).state_locked_until - timezone.now() for claim in (short, long)]
    assert timedelta(seconds=50) < lengths[0] < timedelta(seconds=70)
    assert timedelta(seconds=590) < lengths[1] < timedelta(seconds=610)


def test_deadline_of_the_worker_is_before_the_end_of_the_lease(operations):
    put(Step)
    (claim,) = claim_all(operations)
    assert claim.claimed + 0.8 * claim.lease == claim.deadline


def test_claim_knows_how_long_the_row_has_been_in_its_state(operations):
    put(Step, state_changed=ago(500))
    assert 499 < claim_all(operations)[0].age < 510


def test_two_workers_never_claim_one_row(make):
    for _ in range(40):
        put(Step)
    workers = [make() for _ in range(4)]
    barrier = threading.Barrier(4)

    def drain(operations):
        claims = []
        for _ in range(10):
            barrier.wait(30)
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


@pytest.mark.parametrize(("state", "ready"), [("slow", True), ("late", False), ("outside", False), ("done", False)])
def test_state_that_is_entered_is_ready_where_it_is_attempted_at_once(operations, state, ready):
    step = put(Step)
    record(operations, (take(operations, step), Moved(StepGraph.states[state])))
    assert row(step).state_ready is ready


def test_state_with_a_first_delay_is_due_after_its_interval(operations):
    step = put(Step)
    record(operations, (take(operations, step), Moved(StepGraph.late)))
    assert timedelta(seconds=55) < row(step).state_next_attempt - timezone.now() < timedelta(seconds=65)


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
    step = put(Step, state_failures=1)
    claim = take(operations, step)
    written = record(operations, (claim, Waiting(30.0, ERROR)))
    assert row(step).state_failures == 2
    assert written.failures == [(step.pk, ERROR)]
    report = Report.objects.get()
    assert (report.model_label, report.object_pk, report.state) == ("testapp.step", str(step.pk), "new")
    assert (report.error, report.message, report.fingerprint) == ("ValueError", "no", ERROR.fingerprint)
    assert (report.times, report.worker) == (1, operations.worker_id)


def test_move_because_of_a_failure_is_both(operations):
    step = put(Step)
    written = record(operations, (take(operations, step), Moved(StepGraph.failed, ERROR)))
    assert row(step).state == "failed"
    assert len(written.moves) == len(written.failures) == 1
    assert Report.objects.get().error == "ValueError"


def test_row_that_is_released_until_later_is_due_then_and_the_attempt_is_refunded(operations):
    soon, later = put(Step, state_failures=2, state_crashes=1), put(Step, state_failures=1)
    claims = [claim for crashes in Crashes for claim in operations.claim(automatic(operations), 2, crashes=crashes)]
    outcomes = {soon.pk: Released(), later.pk: Released(60.0, "the database was away")}
    written = record(operations, *((claim, outcomes[claim.pk]) for claim in claims))
    soon, later = row(soon), row(later)
    assert [(found.state_attempts, found.state_claim, found.state_changed) for found in (soon, later)] == [
        (0, None, soon.state_changed), (0, None, later.state_changed),
    ]  # fmt: skip
    assert [(found.state_failures, found.state_crashes) for found in (soon, later)] == [(2, 1), (1, 0)]
    assert (soon.state_ready, soon.state_next_attempt) == (True, None)
    assert not later.state_ready
    assert 55 < (later.state_next_attempt - later.state_attempted).total_seconds() < 120
    assert (written.moves, written.failures, written.lost) == ([], [], [])
    assert Report.objects.get().message == "the database was away"


def test_attempt_that_ends_at_all_clears_the_count_of_crashes(operations):
    step = put(Step, state_crashes=2)
    (claim,) = operations.claim(automatic(operations), 1, crashes=Crashes.MANY)
    record(operations, (claim, Waiting(30.0, ERROR)))
    assert row(step).state_crashes == 0


def test_released_row_is_ready_again_and_the_attempt_is_refunded(operations):
    step = put(Step, state_next_attempt=ago(77), state_failures=2)
    claim = take(operations, step)
    written = record(operations, (claim, Released()))
    found = row(step)
    assert (found.state_ready, found.state_claim, found.state_locked_until) == (True, None, None)
    assert (found.state_attempts, found.state_failures, found.state_version) == (0, 2, 0)
    assert found.state_next_attempt == step.state_next_attempt
    assert (written.moves, written.failures, written.lost) == ([], [], [])
    assert Stats.objects.count() == 0


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

    step = put(Step)
    claim = take(operations, step)
    monkeypatch.setattr(base, "keep", refuse)
    with pytest.raises(DatabaseError, match="the disk is full"):
        record(operations, (claim, Waiting(5.0, ERROR)))
    assert (row(step).state_claim, row(step).state_failures) == (claim.token, 0)
    assert not Stats.objects.exists()


def test_outcomes_of_two_claim_statements_go_into_one_batch(operations):
    put(Step)
    put(Step)
    claims = [*claim_all(operations, 1), *claim_all(operations, 1)]
    written = record(operations, *((claim, Moved(StepGraph.done)) for claim in claims))
    assert len(written.moves) == 2
    assert raw(Step).filter(state="done").count() == 2


def test_late_outcome_beside_the_current_one_of_its_row_writes_nothing(operations):
    step = put(Step)
    late = take(operations, step)
    expire(step)
    operations.reap(10)
    (current,) = operations.claim(automatic(operations), 1, crashes=Crashes.FEW)
    done = Moved(StepGraph.done)
    for batch in ([(late, done), (current, done)], [(current, done), (late, done)]):
        Stats.objects.all().delete()
        change(step, state="new", state_version=0, state_claim=current.token)
        written = record(operations, *batch)
        assert written.lost == [late]
        assert [move.pk for move in written.moves] == [step.pk]
        assert (row(step).state, row(step).state_version) == ("done", 1)
        assert sum(Stats.objects.values_list("handled", flat=True)) == 1


@pytest.mark.parametrize("outcome", [Moved(StepGraph.done), Waiting(5.0, ERROR), Released()])
def test_outcome_whose_answer_was_lost_is_found_written_when_it_is_repeated(operations, outcome):
    step = put(Step)
    claim = take(operations, step)
    once = record(operations, (claim, outcome))
    before = raw(Step).filter(pk=step.pk).values().get()
    again = operations.record([(claim, outcome)], again=True)
    assert (again.lost, again.deferred) == ([], [])
    assert (again.moves, again.failures) == (once.moves, once.failures)
    assert raw(Step).filter(pk=step.pk).values().get() == before
    # Who does not say that it is repeated has lost the claim.
    assert record(operations, (claim, outcome)).lost == [claim]
    assert raw(Step).filter(pk=step.pk).values().get() == before


def test_outcome_that_is_repeated_for_a_row_that_others_have_claimed_since_is_lost(operations):
    step = put(Step)
    claim = take(operations, step)
    expire(step)
    operations.reap(10)
    operations.claim(automatic(operations), 1, crashes=Crashes.FEW)
    for outcome in (Moved(StepGraph.done), Waiting(5.0), Released()):
        assert operations.record([(claim, outcome)], again=True).lost == [claim]


# Fencing


def refused(operations, claim, outcome=None):
    """Write an outcome that must be refused: the row stays as it is, and the claim is told of as lost."""
    before = raw(Step).filter(pk=claim.pk).values().first()
    written = record(operations, (claim, outcome or Moved(StepGraph.done)))
    assert raw(Step).filter(pk=claim.pk).values().first() == before
    assert written.lost == [claim]
    assert (written.moves, written.failures, written.deferred) == ([], [], [])
    assert not Stats.objects.exists()
    assert not Report.objects.exists()


@pytest.mark.parametrize(
    "outcome", [Moved(StepGraph.done), Moved(StepGraph.failed, ERROR), Waiting(5.0), Waiting(5.0, ERROR), Released()]
)
def test_late_finisher_does_not_overwrite(make, outcome):
    step = put(Step)
    late, other = make(), make()
    claim = take(late, step)
    expire(step)
    other.reap(10)
    (second,) = other.claim(automatic(other), 1, crashes=Crashes.FEW)
    refused(late, claim, outcome)
    assert record(other, (second, Moved(StepGraph.done))).lost == []


def test_outcome_after_the_lease_ran_out_but_before_anybody_noticed_is_accepted(operations):
    step = put(Step)
    claim = take(operations, step)
    expire(step)
    assert record(operations, (claim, Moved(StepGraph.done))).lost == []
    assert row(step).state == "done"


def test_outcome_after_reaping_is_refused(operations):
    step = put(Step)
    claim = take(operations, step)
    expire(step)
    operations.reap(10)
    refused(operations, claim)


def test_outcome_after_a_move_by_hand_is_refused(operations):
    step = put(Step)
    claim = take(operations, step)
    step.transition_perform("slow")
    refused(operations, claim)


def test_outcome_after_moving_away_and_back_is_refused(operations):
    step = put(Step)
    claim = take(operations, step)
    step.transition_perform("slow")
    step.transition_perform("new")
    refused(operations, claim)


def test_outcome_of_a_row_whose_state_was_changed_past_us_is_refused(operations):
    step = put(Step)
    claim = take(operations, step)
    change(step, state="slow")
    refused(operations, claim)


def test_outcome_for_a_row_that_is_gone_is_lost_and_brings_nothing_back(operations):
    step = put(Step)
    claim = take(operations, step)
    raw(Step).filter(pk=step.pk).delete()
    assert record(operations, (claim, Waiting(5.0, ERROR))).lost == [claim]
    assert not raw(Step).exists()
    assert not Report.objects.exists()


def test_outcome_is_accepted_once(operations):
    step = put(Step)
    claim = take(operations, step)
    record(operations, (claim, Waiting(0.0)))
    Stats.objects.all().delete()
    refused(operations, claim)


def test_lost_lease_does_not_spoil_its_batch(operations):
    steps = [put(Step, state_changed=ago(9 - number)) for number in range(3)]
    claims = claim_all(operations)
    steps[1].transition_perform("slow")
    written = record(operations, *((claim, Moved(StepGraph.done)) for claim in claims))
    assert written.lost == [claims[1]]
    assert [row(step).state for step in steps] == ["done", "slow", "done"]


@pytest.mark.postgresql
def test_outcome_of_a_row_that_an_application_has_locked_is_deferred_not_lost(operations):
    # SQLite locks no single rows.
    held, free = put(Step, state_changed=ago(9)), put(Step)
    claims = claim_all(operations)
    with locked_elsewhere(held):
        written = record(operations, *((claim, Moved(StepGraph.done)) for claim in claims))
        assert written.deferred == [(claims[0], Moved(StepGraph.done))]
        assert written.lost == []
        assert row(free).state == "done"
    assert record(operations, *written.deferred).lost == []
    assert row(held).state == "done"


# Leases


def test_renewed_lease_ends_later(operations):
    step = put(Step)
    claim = take(operations, step)
    change(step, state_locked_until=ago(-5))
    assert operations.renew([claim]) == set()
    assert timedelta(seconds=55) < row(step).state_locked_until - timezone.now() < timedelta(seconds=65)


def test_each_lease_is_renewed_by_its_own_length(operations):
    put(Step, state_changed=ago(1))
    put(Step, state="slow")
    claims = claim_all(operations)
    raw(Step).update(state_locked_until=ago(-5))
    operations.renew(claims)
    lengths = [(row(claim.instance).state_locked_until - timezone.now()).total_seconds() for claim in claims]
    assert lengths == pytest.approx([60, 600], abs=5)


def test_renewing_tells_which_claims_have_ended(operations):
    for _ in range(3):
        put(Step)
    claims = claim_all(operations)
    raw(Step).get(pk=claims[0].pk).transition_perform("slow")
    raw(Step).filter(pk=claims[2].pk).delete()
    assert operations.renew(claims) == {id(claims[0]), id(claims[2])}


def test_stale_holder_cannot_renew(make):
    step = put(Step)
    late, other = make(), make()
    claim = take(late, step)
    expire(step)
    other.reap(10)
    other.claim(automatic(other), 1, crashes=Crashes.FEW)
    until = row(step).state_locked_until
    assert late.renew([claim]) == {id(claim)}
    assert row(step).state_locked_until == until


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
    assert (row(step).state_locked_until - timezone.now()).total_seconds() == pytest.approx(1000, abs=5)
    assert claim.max_runtime == 3600
    assert claim.deadline > claim.claimed + 700


def test_lease_extended_for_a_day_is_not_taken_for_a_clock_that_was_set_back(operations):
    step = put(Step)
    claim = take(operations, step)
    assert claim.extend(86400)
    assert operations.reap(10) == []
    assert claim.still_mine()
    assert claim.max_runtime >= 86400
    assert claim.deadline - claim.claimed < (row(step).state_locked_until - timezone.now()).total_seconds()


def test_ended_claim_cannot_be_extended(operations):
    step = put(Step)
    claim = take(operations, step)
    step.transition_perform("slow")
    assert not claim.extend(1000)
    assert row(step).state_locked_until is None


def test_claim_that_others_have_taken_over_is_neither_held_nor_extended(make):
    step, late, other = put(Step), make(), make()
    claim = take(late, step)
    expire(step)
    other.reap(10)
    (second,) = other.claim(automatic(other), 1, crashes=Crashes.FEW)
    assert not claim.still_mine()
    assert not claim.extend(100)
    assert second.still_mine()


def test_lease_may_last_as_long_as_an_attempt(make):
    assert make(LEASE=60, MAX_RUNTIME=5000).longest_lease == 5000


@pytest.mark.parametrize("seconds", [0, -5, float("nan"), float("inf")])
def test_claim_is_extended_by_a_time_only(operations, seconds):
    step = put(Step)
    claim = take(operations, step)
    until = row(step).state_locked_until
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


def test_lease_that_stands_is_not_reaped(operations):
    step = put(Step)
    claim = take(operations, step)
    assert operations.reap(10) == []
    assert claim.still_mine()


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


def test_row_that_loses_too_many_leases_is_quarantined_visibly_until_somebody_retries(operations):
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
    assert take(operations, step)


def test_number_of_crashes_allowed_is_a_setting(make):
    step = put(Step)
    crash(make(MAX_CRASHES=1), step, Crashes.NONE)
    assert not row(step).state_ready


def test_lease_further_away_than_any_lease_can_be_is_reaped_for_the_clock_was_set_back(operations):
    step = put(Step)
    take(operations, step)
    change(step, state_locked_until=ago(-86400))
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


# Chores


def test_due_rows_are_marked_ready(operations):
    due = [put(Step, state_ready=False, state_next_attempt=moment) for moment in (ago(1), None)]
    put(Step, state_ready=False, state_next_attempt=ago(-60))
    put(Step, state="outside")
    assert chores.mark_ready(operations, 10) == 2
    assert set(raw(Step).filter(state_ready=True)) == set(due)
    assert chores.mark_ready(operations, 10) == 0


def test_marking_ready_keeps_the_due_time_so_that_rows_keep_their_place(operations):
    moment = ago(1)
    step = put(Step, state_ready=False, state_next_attempt=moment)
    chores.mark_ready(operations, 10)
    assert row(step).state_next_attempt == moment


def test_marking_ready_is_bounded(operations):
    for _ in range(5):
        put(Step, state_ready=False)
    assert [chores.mark_ready(operations, 2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.fixture
def listener():
    """Moves without a handler are listed only for those who listen."""
    heard = []

    def hear(sender, moves, **kwargs):
        heard.extend(moves)

    transitioned.connect(hear, sender=Step)
    yield heard
    transitioned.disconnect(hear, sender=Step)


@pytest.mark.parametrize(("state", "target"), [("new", "late"), ("outside", "failed")])
def test_timeout_fires_for_resting_rows_of_external_states_too(operations, listener, state, target):
    step = put(Step, state=state, state_ready=False, state_changed=ago(7201), state_failures=1)
    put(Step, state=state, state_ready=False, state_changed=ago(7100))
    moves = chores.time_out(operations, 10)
    assert [(move.pk, move.source, move.to) for move in moves.listed] == [(step.pk, state, target)]
    found = row(step)
    assert (found.state, found.state_version, found.state_failures) == (target, 1, 0)
    assert chores.time_out(operations, 10).count == 0
    assert Stats.objects.get(source=state, to=target).handled == 1


def test_claimed_row_is_not_timed_out_behind_its_handler(operations):
    step = put(Step, state_changed=ago(9000))
    take(operations, step)
    assert chores.time_out(operations, 10).count == 0
    assert row(step).state == "new"


def test_row_is_timed_out_once_by_whoever_comes_first(make):
    for _ in range(10):
        put(Step, state="outside", state_changed=ago(9000))
    workers = [make() for _ in range(3)]
    came = at_once(*(lambda worker=worker: chores.time_out(worker, 100) for worker in workers))
    assert sum(moves.count for moves in came) == 10
    assert set(raw(Step).values_list("state_version", flat=True)) == {1}


def test_rows_under_a_former_name_are_moved_to_the_state_ready_or_not(operations, listener):
    for ready in (True, False):
        change(put(Step), state="older", state_ready=ready)
    held = put(Step, state_claim=new_token(new_worker_id()), state_ready=False)
    change(held, state="older")
    moves = chores.rename(operations, 10)
    assert (moves.count, {(move.source, move.to) for move in moves.listed}) == (2, {("older", "renewed")})
    assert raw(Step).filter(state="renewed", state_ready=True, state_version=1).count() == 2
    assert row(held).state == "older"


def test_rows_are_deleted_once_they_have_stayed_long_enough(operations):
    old = put(Step, state="done", state_changed=ago(86401))
    put(Step, state="done", state_changed=ago(86000))
    put(Step, state="failed", state_changed=ago(86401))
    Report.objects.create(model_label="testapp.step", object_pk=str(old.pk), state="done")
    Report.objects.create(model_label="testapp.line", object_pk=str(old.pk), state="done")
    assert chores.delete_due(operations, 10) == 1
    assert not raw(Step).filter(pk=old.pk).exists()
    assert raw(Step).count() == 2
    assert [report.model_label for report in Report.objects.all()] == ["testapp.line"]


def test_row_that_is_leased_is_never_deleted(operations):
    held = put(Step, state_changed=ago(10**6), state_claim=new_token(new_worker_id()), state_ready=False)
    change(held, state="done", state_locked_until=ago(-60))
    assert chores.delete_due(operations, 10) == 0
    assert raw(Step).exists()


def test_deleting_is_bounded(make):
    operations = make(Rest)
    for _ in range(5):
        put(Rest, state_changed=ago(61))
    assert [chores.delete_due(operations, 2) for _ in range(4)] == [2, 2, 1, 0]


def test_row_that_cannot_be_deleted_is_passed_over(make):
    operations = make(Rest)
    kept, gone = (put(Rest, state_changed=ago(61)) for _ in range(2))
    Diary.objects.create(rest=kept)
    assert chores.delete_due(operations, 10) == 1
    assert list(raw(Rest).all()) == [kept]
    assert gone.state == RestGraph.settled


@pytest.mark.postgresql
def test_chores_pass_over_locked_rows(operations):
    # SQLite locks no single rows.
    step = put(Step, state_ready=False, state_changed=ago(9000))
    with locked_elsewhere(step):
        assert chores.mark_ready(operations, 10) == 0
        assert chores.time_out(operations, 10).count == 0
    assert chores.mark_ready(operations, 10) == 1


# Looking


def test_work_tells_what_there_is_to_do(operations):
    assert work(operations) == Work()
    put(Step)
    assert work(operations) == Work(ready=True)
    claim_all(operations)
    assert work(operations) == Work()
    raw(Step).update(state_locked_until=ago(1))
    assert work(operations) == Work(expired=True)
    operations.reap(10)
    assert work(operations) == Work(crashed=True)
    raw(Step).update(state_crashes=2)
    assert work(operations) == Work(suspect=True)
    raw(Step).update(state_ready=False, state_crashes=0)
    assert work(operations) == Work(due=True)
    raw(Step).update(state_next_attempt=ago(-60))
    assert work(operations) == Work()


def test_work_tells_of_leases_from_before_the_clock_was_set_back(operations):
    step = put(Step)
    take(operations, step)
    change(step, state_locked_until=ago(-86400))
    assert work(operations) == Work(expired=True)


def test_work_tells_how_long_it_is_until_the_next_row_comes_due(make):
    operations = make(POLL_INTERVAL=5.0)
    put(Step, state_ready=False, state_next_attempt=ago(-9))
    assert work(operations).next_due is None
    for seconds in (4, 3, 2):
        put(Step, state_ready=False, state_next_attempt=ago(-seconds))
        # Rows of more than one state: the nearest of all.
        put(Step, state=StepGraph.slow, state_ready=False, state_next_attempt=ago(-seconds - 0.5))
        assert seconds - 1 < work(operations).next_due <= seconds
    put(Step, state_ready=False, state_next_attempt=ago(1))
    assert work(operations).due
    assert 0 < work(operations).next_due <= 2


def test_look_tells_of_several_models_in_one_statement(make, monkeypatch):
    steps, rests = make(), make(Rest)
    asked = []
    for operations in (steps, rests):
        fetch = operations.fetch
        monkeypatch.setattr(operations, "fetch", lambda *given, fetch=fetch: asked.append(given) or fetch(*given))
    put(Step)
    assert look(steps, rests) == {steps: Work(ready=True), rests: Work()}
    assert len(asked) == 1


def test_look_at_very_many_models_takes_several_statements(make):
    put(Step)
    # Of one answer each, four and one for each automatic state: more than a statement of PostgreSQL may give.
    many = [make(model) for _ in range(150) for model in (Step, Rest)]
    found = look(*many)
    assert [found[operations].ready for operations in many] == [True, False] * 150


def test_queue_is_sampled_with_the_wait_of_its_oldest_row(operations):
    put(Step, state_changed=ago(100))
    put(Step, state_ready=False, state_next_attempt=ago(1))
    put(Step, state_ready=False, state_next_attempt=ago(-60))
    put(Step, state="done")
    chores.sample_depths(operations, limit=100)
    chores.sample_depths(operations, limit=100)
    depth = Depth.objects.get()
    assert (depth.model_label, depth.queued) == ("testapp.step", 2)
    assert 99 < depth.oldest < 120


def test_samples_of_all_models_of_a_database_are_kept_by_one_statement(make):
    put(Step)
    models = make(), make(Rest)
    with CaptureQueriesContext(connection) as asked:
        chores.sample_depths(*models, limit=100)
    inserts = [each["sql"] for each in asked if each["sql"].startswith("INSERT")]
    assert len(inserts) == 1
    assert sorted(Depth.objects.values_list("model_label", "queued")) == [("testapp.rest", 0), ("testapp.step", 1)]


def test_old_reports_and_statistics_are_pruned(operations):
    for age in (50, 150):
        Report.objects.create(model_label="x", object_pk=str(age), state="a", at=ago(age))
        History.objects.create(model_label="x", object_pk=str(age), version=1, source="a", at=ago(age))
        Stats.objects.create(model_label="x", hour=ago(age), source="a")
        Depth.objects.create(model_label="x", minute=ago(age), queued=1)
    assert chores.prune("default", 10, errors=100, history=100, stats=100) == 4
    assert [model.objects.count() for model in (Report, History, Stats, Depth)] == [1, 1, 1, 1]


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


def test_time_of_a_refused_outcome_is_not_counted(operations):
    step = put(Step, state_changed=ago(100))
    claim = take(operations, step)
    change(step, state_claim=None, state_ready=True)
    again = take(operations, step)
    record(operations, (claim, Moved(StepGraph.done)))
    assert times() == {}
    record(operations, (again, Moved(StepGraph.done)))
    assert times()["new", "done"] == pytest.approx((100, 100), abs=20)


def test_time_is_never_less_than_nothing_though_the_clock_was_set_back(operations):
    claim = take(operations, put(Step, state_changed=ago(-100)))
    record(operations, (claim, Moved(StepGraph.done)))
    assert times()["new", "done"] == (0, 0)


def test_time_before_a_timeout_is_counted(operations):
    for age in (7300, 8000):
        put(Step, state="outside", state_ready=False, state_changed=ago(age))
    put(Step, state="outside", state_ready=False, state_changed=ago(7100))
    assert chores.time_out(operations, 10).count == 2
    seconds, longest = times()["outside", "failed"]
    assert (seconds, longest) == pytest.approx((15_300, 8000), abs=40)


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


def test_reason_to_wait_is_reported_without_an_error(operations):
    step = put(Step)
    for _ in range(2):
        attempt_again(operations, step, Waiting(5.0, None, "DNS not propagated"))
    report = Report.objects.get()
    assert (report.error, report.message, report.times, report.traceback) == ("", "DNS not propagated", 2, "")
    assert row(step).state_failures == 0


def test_each_object_has_one_report(operations):
    for _ in range(3):
        put(Step)
    claims = claim_all(operations)
    record(operations, *((claim, Waiting(5.0, ERROR)) for claim in claims))
    assert set(Report.objects.values_list("object_pk", flat=True)) == {str(claim.pk) for claim in claims}


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


def test_rows_that_nothing_attempts_lose_the_mark_of_readiness(operations):
    outside, ended, due = put(Step, state="outside"), put(Step, state="failed"), put(Step)
    change(outside, state_ready=True, state_changed=ago(7300))
    change(ended, state_ready=True)
    assert chores.settle(operations, 10) == 2
    assert chores.settle(operations, 10) == 0
    assert [row(step).state_ready for step in (outside, ended, due)] == [False, False, True]
    assert chores.time_out(operations, 10).count == 1


def test_rows_that_are_ready_before_their_time_lose_the_mark_of_readiness(operations):
    early, due, now = put(Step, state_next_attempt=ago(-60)), put(Step, state_next_attempt=ago(1)), put(Step)
    assert chores.settle(operations, 10) == 1
    assert [row(step).state_ready for step in (early, due, now)] == [False, True, True]
