"""Managed objects over HTTP: a token sees the models that it names, and sends the events that it names."""

import pytest

from stator.models import Event, History, Report
from tests.stator.making import put, row
from tests.tasks.serving import token
from tests.testapp.approvals import Expense
from tests.testapp.mails import Mail

pytestmark = pytest.mark.django_db

PATH = "objects/testapp.Expense"
EVENTS = [
    *("reject", "approve"),  # stator.extensions.events
]


@pytest.fixture
def given():
    return token(verbs=(), managed_objects={"testapp.expense": EVENTS})


def test_objects_are_listed_by_key_and_state_page_by_page(call, given):
    expenses = [put(Expense), put(Expense, state="paid"), put(Expense), put(Expense)]
    found = call("GET", f"{PATH}?state=submitted&limit=2", None, given)[1]
    assert [one["pk"] for one in found["objects"]] == [str(expenses[0].pk), str(expenses[2].pk)]
    rest = call("GET", f"{PATH}?state=submitted&limit=2&after={found['next']}", None, given)[1]
    assert ([one["pk"] for one in rest["objects"]], rest["next"]) == ([str(expenses[3].pk)], None)


@pytest.mark.needs("events")
def test_object_has_the_name_of_its_state_and_what_is_stored_and_is_found_by_both(call):
    mail, _ = Mail.objects.create(status="refused"), Mail.objects.create()
    given = token(verbs=(), managed_objects={"testapp.mail": ["again"]})
    for asked in ("refused", "2"):
        [found] = call("GET", f"objects/testapp.Mail?state={asked}", None, given)[1]["objects"]
        assert (found["pk"], found["state"], found["value"]) == (str(mail.pk), "refused", 2)
    sent = call("POST", f"objects/testapp.Mail/{mail.pk}/events/again", {}, given)[1]
    assert (sent["outcome"], sent["object"]["state"], sent["object"]["value"]) == ("moved", "queued", 0)


@pytest.mark.needs("reports", "events")
def test_object_tells_why_it_waits_what_it_takes_and_what_has_happened(call, given):
    expense = put(Expense)
    expense.transition_perform("submitted", actor="ann", reason="again")
    status, found = call("GET", f"{PATH}/{expense.pk}", None, given)
    assert (status, found["state"], found["claimed"]) == (200, "submitted", False)
    assert found["reasons"][0]["code"] == "awaits_event"
    assert found["events"] == [
        {"name": "approve", "to": "approved", "count": 2}, {"name": "reject", "to": "rejected", "count": 1},
    ]  # fmt: skip
    assert [(one["to"], one["actor"], one["reason"]) for one in found["history"]] == [("submitted", "ann", "again")]


def test_object_has_its_latest_error_with_what_the_attempt_logged(call, given):
    expense = put(Expense)
    assert call("GET", f"{PATH}/{expense.pk}", None, given)[1]["error"] is None
    key = {"model_label": "testapp.expense", "object_pk": str(expense.pk)}
    Report.objects.create(**key, state="approved", error="TimeoutError", message="no answer", log="asked the bank")
    History.objects.create(**key, version=1, kind="wait", source="approved", log="asked again")
    found = call("GET", f"{PATH}/{expense.pk}", None, given)[1]
    assert (found["error"]["error"], found["error"]["log"]) == ("TimeoutError", "asked the bank")
    assert [(one["kind"], one["log"]) for one in found["history"]] == [("wait", "asked again")]


@pytest.mark.needs("events")
def test_event_is_sent_under_the_name_of_the_consumer_and_once_for_each_key(call, given):
    expense = put(Expense)
    path, body = f"{PATH}/{expense.pk}/events/reject", {"payload": {"why": "late"}, "key": "m1"}
    status, found = call("POST", path, body, given)
    assert (status, found["outcome"], found["object"]["state"]) == (200, "moved", "rejected")
    again = call("POST", path, body, given)[1]
    other = call("POST", path, {**body, "payload": 2}, given)[1]
    assert [(told["outcome"], "another payload" in told["note"]) for told in (again, other)] == [
        ("repeated", False), ("repeated", True),
    ]  # fmt: skip
    event = Event.objects.get()
    assert (event.sender, event.payload) == ("full", {"why": "late"})
    assert History.objects.earliest("pk").actor == "full"


@pytest.mark.needs("events")
def test_token_counts_as_one_sender_and_its_payload_is_validated(call, given):
    expense = put(Expense)
    path = f"{PATH}/{expense.pk}/events/approve"
    status, found = call("POST", path, {"payload": {}}, given)
    assert (status, found["error"]) == (409, "event_refused")
    assert "note: This field is required" in found["detail"]
    assert call("POST", path, {"payload": {"note": "ok"}}, given)[1]["missing"] == 1
    assert call("POST", path, {"payload": {"note": "ok"}}, given)[0] == 409


@pytest.mark.needs("events")
def test_available_has_what_the_token_may_send_now(call, given):
    expense = put(Expense)
    path = f"{PATH}/{expense.pk}"
    assert call("GET", path, None, given)[1]["available"] == ["approve", "reject"]
    call("POST", f"{path}/events/approve", {"payload": {"note": "ok"}}, given)
    assert call("GET", path, None, given)[1]["available"] == ["reject"]


def test_token_sees_and_sends_nothing_else(call, given):
    put(Expense, pk=1)
    for method, path, status in (
        ("GET", "objects/testapp.packet", 404),
        ("GET", f"{PATH}/999999", 404),
        ("GET", f"{PATH}/x", 404),
        ("GET", f"{PATH}/99999999999999999999999", 404),
        ("GET", f"{PATH}?after=x", 404),
        ("POST", f"{PATH}/1/events/cancel", 403),  # stator.extensions.events
        ("POST", "objects/testapp.packet/1/events/pack", 404),
    ):
        body = {"payload": None} if method == "POST" else None
        assert call(method, path, body, given)[0] == status, path
    assert row(Expense(pk=1)).state == "submitted"


def test_token_without_objects_sees_none(call):
    assert call("GET", PATH, None, token())[0] == 404
    assert call("GET", PATH)[0] == 401
