"""An approval whose approvers are gone is a problem; otherwise ``explain`` names them."""

import json

import pytest
from django.contrib.auth.models import Permission, User

from tests.operating.tools import shell
from tests.stator.making import put
from tests.testapp.approvals import Expense, ExpenseGraph

pytestmark = pytest.mark.django_db


@pytest.fixture
def expense(monkeypatch):
    """One that only people with the permission can move."""
    events = ExpenseGraph.submitted.events
    monkeypatch.setattr(ExpenseGraph.submitted, "events", {"approve": events["approve"]})
    return put(Expense)


def approver(name, **columns):
    user = User.objects.create_user(name, **columns)
    user.user_permissions.add(Permission.objects.get(codename="change_expense"))
    return user


def codes():
    return [one["code"] for one in json.loads(shell("stator", "status", "testapp.Expense", "--json"))["troubles"]]


def test_approval_that_nobody_may_give_is_a_problem(expense):
    gone = approver("gone", is_active=False)
    assert "awaits_nobody" in codes()
    reason = expense.explain()[0]
    assert reason.code == "awaits_nobody"
    assert "testapp.change_expense, which no active user has" in reason.sentence
    gone.is_active = True
    gone.save()
    assert "awaits_nobody" not in codes()
    assert "testapp.change_expense: gone" in expense.explain()[0].sentence


def test_event_that_anybody_may_send_is_no_problem():
    put(Expense)
    assert "awaits_nobody" not in codes()


def test_other_backends_may_know_more(expense, settings):
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "guardian.backends.ObjectPermissionBackend"]
    assert expense.explain()[0].code == "awaits_event"
