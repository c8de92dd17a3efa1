"""Chores without a handler, and the poll that finds work."""

import pytest
from django.db.models import QuerySet

from stator.db import chores
from stator.db.interface import new_token, new_worker_id
from stator.db.probe import Work
from stator.models import History, Report, Stats
from stator.rows import columns
from stator.rows.state_column import state_field
from stator.signals import transitioned
from tests.stator.db.calling import take, work
from tests.stator.making import ago, at_once, change, claim_all, locked_elsewhere, put, raw, row
from tests.stator.running import hearing
from tests.testapp.basic import Rest, Scrap, Step, StepGraph
from tests.testapp.power import Customer, Order, OrderGraph

pytestmark = pytest.mark.usefixtures("transactional_db")


# Chores


def test_due_rows_are_marked_ready(operations):
    due = [put(Step, state_ready=False, state_next_attempt=moment) for moment in (ago(1), None)]
    put(Step, state_ready=False, state_next_attempt=ago(-60))
    put(Step, state="outside")
    assert chores.mark_ready(operations, 10) == 2
    assert set(raw(Step).filter(state_ready=True)) == set(due)
    # By which they keep their place in line.
    assert row(due[0]).state_next_attempt == due[0].state_next_attempt
    assert chores.mark_ready(operations, 10) == 0


@pytest.fixture
def listener():
    """Moves without a handler are listed only for those who listen."""
    with hearing(transitioned, Step) as heard:
        yield heard


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


def test_rows_under_a_former_name_get_the_new_one_and_keep_the_rest(operations, listener):
    times = {"state_changed": ago(900), "state_attempted": ago(60), "state_next_attempt": ago(1)}
    kept = {**times, "state_attempts": 5, "state_failures": 4, "state_crashes": 1}
    ready, resting = put(Step, **kept), put(Step, state_ready=False, **kept)
    for step in (ready, resting):
        change(step, state="older")
    held = put(Step, state_claim=new_token(new_worker_id()), state_ready=False)
    change(held, state="older")
    moves = chores.rename(operations, 10)
    assert (moves.count, {(move.source, move.to) for move in moves.listed}) == (2, {("older", "renewed")})
    assert [row(each).state_ready for each in (ready, resting)] == [True, False]
    assert {tuple(getattr(row(each), name) for name in kept) for each in (ready, resting)} == {(*kept.values(),)}
    assert row(held).state == "older"
    assert chores.mark_ready(operations, 10) == 1
    assert raw(Step).filter(state="renewed", state_ready=True, state_version=1).count() == 2
    # A state that is external under its new name is not ready.
    raw(Step).filter(pk=ready.pk).update(**columns.renaming(state_field(Step), StepGraph.outside))
    assert (row(ready).state, row(ready).state_ready) == ("outside", False)


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


def test_rows_of_a_model_that_deletes_softly_are_deleted_by_its_manager_once(make):
    old, young = put(Scrap, state_changed=ago(61)), put(Scrap, state_changed=ago(59))
    made = make(Scrap)
    assert chores.delete_due(made, 10) == 1
    assert chores.delete_due(made, 10) == 0
    assert dict(raw(Scrap).values_list("pk", "deleted")) == {old.pk: True, young.pk: False}


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


def test_work_tells_how_long_it_is_until_the_next_row_comes_due(make):
    operations = make(POLL_INTERVAL=500.0)
    put(Step, state_ready=False, state_next_attempt=ago(-900))
    assert work(operations).next_due is None
    for seconds in (400, 300, 200):
        put(Step, state_ready=False, state_next_attempt=ago(-seconds))
        # Rows of more than one state: the nearest of all.
        put(Step, state=StepGraph.slow, state_ready=False, state_next_attempt=ago(-seconds - 50))
        assert seconds - 60 < work(operations).next_due <= seconds
    put(Step, state_ready=False, state_next_attempt=ago(1))
    assert work(operations).due
    assert 100 < work(operations).next_due <= 200


def test_rows_that_nothing_attempts_lose_the_mark_of_readiness(operations):
    outside, ended, due = put(Step, state="outside"), put(Step, state="failed"), put(Step)
    change(outside, state_ready=True, state_changed=ago(7300))
    change(ended, state_ready=True)
    assert chores.settle(operations, 10) == 2
    assert chores.settle(operations, 10) == 0
    assert [row(step).state_ready for step in (outside, ended, due)] == [False, False, True]
    assert chores.time_out(operations, 10).count == 1


# Transitions that a statement makes, without a handler


def test_sql_transition_moves_all_that_match_and_joins_and_tells_of_them(make):
    blocked = Customer.objects.create(blocked=True)
    small, large, theirs = Order.objects.create(amount=5), Order.objects.create(amount=500), Order(customer=blocked)
    theirs.save()
    made = make(Order)
    with hearing(transitioned, Order):
        moves = chores.move_matching(made, 100)
    assert {(move.pk, move.source, move.to) for move in moves.listed} == {
        (large.pk, "waiting", "working"), (theirs.pk, "waiting", "shipped"),
    }  # fmt: skip
    entry = History.objects.get(object_pk=str(large.pk))
    assert (entry.kind, entry.to, entry.version, entry.reason) == ("move", "working", 1, "condition met")
    states = dict(Order.objects.values_list("pk", "state"))
    assert states == {small.pk: "waiting", large.pk: "working", theirs.pk: "shipped"}
    assert chores.move_matching(made, 100).count == 0
    large.refresh_from_db()
    # attempt_immediately=False: due after one interval.
    assert (large.state_version, large.state_ready, large.state_next_attempt is None) == (1, False, False)
    counted = set(Stats.objects.values_list("source", "to", "handled"))
    assert counted == {("waiting", "working", 1), ("waiting", "shipped", 1)}
    assert all(0 < stats.longest == stats.seconds < 60 for stats in Stats.objects.all())


def test_sql_transition_leaves_claimed_rows_alone_and_is_bounded(make):
    Order.objects.bulk_create(Order(amount=500) for _ in range(5))
    made = make(Order)
    assert chores.move_matching(made, 3).count == 3
    assert chores.move_matching(made, 3).count == 2
    Order.stator.retry()
    claims = made.claim(list(OrderGraph.automatic_states), 5)
    QuerySet(Order).update(amount=-1)
    assert chores.move_matching(made, 10).count == 0
    assert len(claims) == 5
