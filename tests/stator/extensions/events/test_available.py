"""Events are available to those who may send them now, and to nobody else."""

from copy import copy

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User

from stator import Sender
from stator.exceptions import EventRefused
from stator.extensions.events.available import answers_to, available_to
from tests.stator.making import put, row
from tests.testapp.approvals import Expense, ExpenseGraph

pytestmark = pytest.mark.django_db


def person(name, *codenames):
    user = User.objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def test_sender_is_offered_what_send_takes_from_it():
    anna, ina, lena = person("anna", "change_expense"), person("ina", "change_expense"), person("lena")
    expense = put(Expense)
    token = Sender("shop", permitted=True)
    offered = {str(by): expense.stator.available(by) for by in (anna, ina, lena, token, "robot", None, AnonymousUser())}
    both, one = ["approve", "reject"], ["reject"]
    assert offered == {
        "anna": both, "ina": one, "lena": one, "shop": both, "robot": one, "None": one, "AnonymousUser": one,
    }  # fmt: skip
    with pytest.raises(EventRefused):
        expense.stator.send("approve", {"note": "ok"}, by=ina)


def test_who_has_answered_in_this_visit_is_not_asked_again():
    anna = person("anna", "change_expense")
    first, second = put(Expense), put(Expense)
    first.stator.send("approve", {"note": "ok"}, by=anna)
    assert [[event.name for event in events] for events in available_to(anna, [row(first), row(second)])] == [
        ["reject"], ["approve", "reject"],
    ]  # fmt: skip
    assert answers_to([row(first), row(second)]) == [{"approve": ["anna"]}, {}]
    first.transition_perform("rejected")
    assert first.stator.available(anna) == []
    first.transition_perform("submitted")
    assert first.stator.available(anna) == ["approve", "reject"]


def test_state_is_read_from_the_database_and_an_unsaved_object_offers_nothing():
    expense = put(Expense)
    row(expense).stator.send("reject")
    assert (expense.state, expense.stator.available("ops"), Expense().stator.available("ops")) == ("submitted", [], [])


def test_fault_of_a_function_permits_nothing_and_is_logged(monkeypatch, caplog):
    faulty = copy(ExpenseGraph.submitted.events["reject"])
    faulty.unless = lambda expense, sender: expense.nothing
    monkeypatch.setitem(ExpenseGraph.submitted.events, "reject", faulty)
    assert put(Expense).stator.available(Sender("shop", permitted=True)) == ["approve"]
    assert "stator.event_unjudged" in caplog.messages


def test_many_objects_take_one_statement(django_assert_num_queries):
    rows = [put(Expense) for _ in range(5)]
    with django_assert_num_queries(1):
        available_to(Sender("shop", permitted=True), rows)
