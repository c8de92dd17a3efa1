"""Transitions that a statement makes, without a handler."""

import pytest
from django.db.models import Q, QuerySet

from stator.db import chores
from stator.exceptions import GraphError
from stator.graph import State, StateGraph
from stator.models import History, Stats
from stator.signals import transitioned
from tests.testapp.power import Customer, Order, OrderGraph

pytestmark = pytest.mark.django_db(transaction=True)


def test_sql_transition_moves_all_that_match_and_joins(make):
    blocked = Customer.objects.create(blocked=True)
    small, large, theirs = Order.objects.create(amount=5), Order.objects.create(amount=500), Order(customer=blocked)
    theirs.save()
    made = make(Order)
    assert chores.move_matching(made, 100).count == 2
    states = dict(Order.objects.values_list("pk", "state"))
    assert states == {small.pk: "waiting", large.pk: "working", theirs.pk: "shipped"}
    assert chores.move_matching(made, 100).count == 0
    large.refresh_from_db()
    # attempt_immediately=False: due after one interval.
    assert (large.state_version, large.state_ready, large.state_next_attempt is None) == (1, False, False)
    assert set(Stats.objects.values_list("source", "to", "handled")) == {
        ("waiting", "working", 1),
        ("waiting", "shipped", 1),
    }
    assert all(0 < stats.longest == stats.seconds < 60 for stats in Stats.objects.all())


def test_sql_transition_keeps_history_and_tells_those_who_listen(make):
    order = Order.objects.create(amount=500)
    heard = []

    def hear(sender, moves, **kwargs):
        heard.extend(moves)

    transitioned.connect(hear, sender=Order)
    try:
        moves = chores.move_matching(make(Order), 100)
    finally:
        transitioned.disconnect(hear, sender=Order)
    assert [(move.pk, move.source, move.to) for move in moves.listed] == [(order.pk, "waiting", "working")]
    entry = History.objects.get(object_pk=str(order.pk))
    assert (entry.kind, entry.source, entry.to, entry.version) == ("move", "waiting", "working", 1)
    assert (entry.reason, entry.model_label) == ("condition met", "testapp.order")


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


@pytest.mark.parametrize("condition", ["paid", None, 3, ("amount", 3)])
def test_condition_that_is_none_is_refused_by_name(condition):
    with pytest.raises(GraphError, match=r"Wrong\.new\.when\(.*\): takes a condition, such as Q"):

        class Wrong(StateGraph):
            new = State()
            done = State()
            new.when(condition).to(done)


def test_state_that_is_left_by_conditions_alone_needs_no_handler():
    class Conditional(StateGraph):
        new = State()
        done = State()
        new.when(Q(pk__gt=0)).to(done)

    assert not Conditional.new.automatic
    assert Conditional.new.children == {Conditional.done}
