"""Reports and history: moves, errors and manual actions."""

import pytest
from django.db.models import QuerySet

from stator.db import chores
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Waiting
from stator.models import History, Stats
from tests.stator.making import ago
from tests.stator.running import work
from tests.testapp.power import Order, OrderGraph

pytestmark = pytest.mark.django_db(transaction=True)


def been_there(order, seconds):
    QuerySet(Order).filter(pk=order.pk).update(state_changed=ago(seconds))


def stay_of(order):
    return History.objects.get(object_pk=str(order.pk)).stay


def test_history_of_sql_transitions_has_the_time_in_the_state_that_was_left(operations):
    orders = {seconds: Order.objects.create(amount=500) for seconds in (90, 5000)}
    for seconds, order in orders.items():
        been_there(order, seconds)
    assert chores.move_matching(operations(Order), 100).count == 2
    for seconds, order in orders.items():
        assert seconds <= stay_of(order) < seconds + 30


@pytest.mark.parametrize("failure", [None, describe(ValueError("unlucky"))], ids=["moved", "failed"])
def test_history_of_attempts_has_the_time_in_the_state_that_was_left(operations, failure):
    made = operations(Order)
    orders = {seconds: Order.objects.create(state="working", amount=seconds) for seconds in (90, 5000)}
    for seconds, order in orders.items():
        been_there(order, seconds)
    Order.stator.retry()
    claims = made.claim([OrderGraph.working], 10)
    assert made.record([(claim, Moved(OrderGraph.shipped, failure)) for claim in claims]).moves
    for seconds, order in orders.items():
        assert seconds <= stay_of(order) < seconds + 30
    [stats] = Stats.objects.all()
    assert stats.longest == pytest.approx(stay_of(orders[5000]))
    assert stats.seconds == pytest.approx(stay_of(orders[90]) + stay_of(orders[5000]))


def test_history_of_errors_and_acts_has_no_stay_and_that_of_moves_by_hand_has(operations):
    made = operations(Order)
    order = Order.objects.create(state="working", amount=1)
    been_there(order, 90)
    Order.stator.retry(actor="ada")
    claims = made.claim([OrderGraph.working], 10)
    made.record([(claims[0], Waiting(60, describe(ValueError("unlucky"))))])
    order.transition_perform("shipped", actor="ada")
    kept = {entry.kind + entry.to: entry.stay for entry in History.objects.all()}
    assert sorted(kept) == ["error", "hand", "handshipped"]
    assert (kept["error"], kept["hand"]) == (None, None)
    assert 90 <= kept["handshipped"] < 120


def test_history_has_a_row_for_each_move_error_and_act_of_a_person():
    order = Order.objects.create(amount=101)
    order.transition_perform("working", actor="ada", reason="checked")
    Order.stator.retry()
    work(Order)
    QuerySet(Order).update(amount=7)
    Order.stator.retry()
    work(Order)
    entries = list(History.objects.filter(object_pk=str(order.pk)).order_by("pk"))
    assert [(entry.kind, entry.source, entry.to, entry.version) for entry in entries] == [
        ("hand", "waiting", "working", 1),
        ("error", "working", "", 1),
        ("move", "working", "shipped", 2),
    ]
    hand, error, move = entries
    assert (hand.actor, hand.reason) == ("ada", "checked")
    assert (error.error, len(error.fingerprint), error.attempts) == ("ValueError: unlucky", 16, 1)
    assert move.attempts == 2
    assert all(entry.worker and entry.duration >= 0 for entry in (error, move))
