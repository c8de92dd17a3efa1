"""``stator send``: an event is sent to an object, and a refusal is one line."""

import getpass

import pytest
from django.contrib.auth.models import User

from stator.models import Event
from tests.stator.commands.errands import asked, refused, run
from tests.stator.making import put, row
from tests.testapp.approvals import Expense

pytestmark = pytest.mark.django_db(transaction=True)

LABEL = "testapp.Expense"


def test_send_moves_an_object_under_the_name_of_the_user_of_the_system():
    expense = put(Expense)
    told = run("send", LABEL, expense.pk, "reject", "--payload", '{"why": "twice"}')
    assert told == f"reject to {LABEL} {expense.pk}: moved.\n"
    assert row(expense).state == "rejected"
    event = Event.objects.get()
    assert (event.sender, event.payload) == (getpass.getuser(), {"why": "twice"})


def test_send_counts_users_and_says_how_many_are_missing():
    anna = User.objects.create_superuser("anna")
    expense = put(Expense)
    given = ("send", LABEL, expense.pk, "approve", "--payload", '{"note": "ok"}', "--key", "k1", "--by", anna.username)
    assert asked(*given) == {
        "model": LABEL, "pk": str(expense.pk), "event": "approve", "outcome": "counted", "missing": 1,
    }  # fmt: skip
    assert run(*given).endswith("sent before, with this key; nothing changed.\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("aprove",), "ExpenseGraph has no event 'aprove'; its events: approve, reject, hurry, cancel, receipt"),
        (("approve", "--by", "nobody"), "--by 'nobody': there is no such user; give the username of one"),
        (("reject", "--payload", "{"), "--payload '{' is not JSON: Expecting property name enclosed in double quotes"),
        (("approve",), "'approve' needs a user with the permission testapp.change_expense; pass by=USER"),
    ],
)
def test_refusals_are_one_line(given, told):
    expense = put(Expense)
    assert told in refused("send", LABEL, expense.pk, *given)
    assert row(expense).state == "submitted"
