"""Events are sent from an object's page and from lists, by those who may."""

import re
from copy import copy
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from stator.admin import StatorAdmin
from stator.extensions.events.admin import inbox as waiting
from stator.extensions.events.admin import sending
from stator.extensions.events.senders import Sender
from stator.models import Event, History
from stator.rows.locking import in_batches
from tests.stator.admin.requests import act, live, part, seen_in
from tests.stator.making import ago, put, raw, row
from tests.testapp.approvals import Expense, ExpenseGraph

pytestmark = pytest.mark.django_db

URL = "/admin/testapp/expense/"


def send(client: Client, name: str, *rows: Any, **data: str) -> Any:
    """Ask for the page of an event, and send what it asks for."""
    asked = act(client, "stator_send", *rows, url=URL, stator_event=name)
    assert asked.status_code == 200
    given = {"stator_event": name, "stator_asked": name, "stator_confirmed": "1", "stator_seen": seen_in(asked)}
    return act(client, "stator_send", *rows, url=URL, **given, **data)


def client_of(name: str, *permissions: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def test_users_see_and_send_only_what_they_may() -> None:
    expense = put(Expense)
    approver = client_of("anna", "view_expense", "change_expense")
    looker = client_of("lena", "view_expense")
    acts = part(live(approver, expense, URL), "acts")
    assert {*re.findall(r'name="stator_event" value="(\w+)"', acts)} == {"approve", "reject"}
    assert 'name="stator_event"' not in live(looker, expense, URL)
    act(looker, "stator_send", expense, url=URL, stator_event="reject", stator_confirmed="1", stator_asked="reject")
    assert row(expense).state == "submitted"


def test_form_of_the_event_is_asked_for_and_checked_and_keeps_its_text(admin_client: Client) -> None:
    expense, mine = put(Expense), put(Expense, submitter="admin")
    again = send(admin_client, "approve", expense, note="x" * 21)
    assert "Ensure this value has at most 20 characters" in again.content.decode()
    text = send(admin_client, "approve", mine, note="mine", stator_reason="as agreed").content.decode()
    assert "admin may not send &#x27;approve&#x27; to testapp.Expense" in text
    assert ('value="mine"' in text, 'value="as agreed"' in text) == (True, True)
    assert not Event.objects.exists()
    send(admin_client, "approve", expense, note="fine", amount="3.5", stator_reason="as agreed")
    event = Event.objects.get()
    assert (event.sender, event.payload) == ("admin", {"note": "fine", "amount": "3.5"})
    told = History.objects.get().reason
    assert told == 'approve {"note": "fine", "amount": "3.5"}: as agreed (1 of 2)'
    assert "Sent approve. as agreed" in admin_client.get(f"{URL}{expense.pk}/history/").content.decode()


def test_event_is_chosen_for_many_and_those_that_do_not_take_it_are_left_alone(admin_client: Client) -> None:
    expenses = [put(Expense), put(Expense), put(Expense, state="paid")]
    chosen = act(admin_client, "stator_send", *expenses, url=URL).content.decode()
    assert "3 expenses are chosen." in chosen
    assert '<option value="reject">' in chosen
    send(admin_client, "reject", *expenses, payload='{"why": "late"}')
    assert [row(each).state for each in expenses] == ["rejected", "rejected", "paid"]
    assert "2 expenses got reject" in admin_client.get(URL).content.decode()
    assert [event.payload for event in Event.objects.all()] == [{"why": "late"}] * 2


@pytest.fixture
def escalated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is escalated, the same event needs another permission."""
    other = copy(ExpenseGraph.submitted.events["reject"])
    other.state, other.permission = ExpenseGraph.escalated, "testapp.delete_expense"
    monkeypatch.setitem(ExpenseGraph.escalated.events, "reject", other)


@pytest.mark.usefixtures("escalated")
def test_permission_is_that_of_the_event_in_the_state_of_each_object() -> None:
    expenses = [put(Expense), put(Expense, state="escalated")]
    lena = client_of("lena", "view_expense", "delete_expense")
    asked = act(lena, "stator_send", *expenses, url=URL, stator_event="reject").content.decode()
    assert "1 expense will get" in asked
    send(lena, "reject", *expenses)
    assert [row(each).state for each in expenses] == ["submitted", "rejected"]


@pytest.mark.usefixtures("escalated")
def test_permission_is_checked_again_when_the_object_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    expense = put(Expense, state="escalated")

    def move_first(*args: Any, **options: Any) -> int:
        expense.transition_perform("submitted")
        return in_batches(*args, **options)

    monkeypatch.setattr(sending, "in_batches", move_first)
    told = send(client_of("lena", "view_expense", "delete_expense"), "reject", expense).content.decode()
    assert "lena may not send &#x27;reject&#x27; to an object in submitted" in told
    assert row(expense).state == "submitted"


def inbox(client: Client) -> list[str]:
    """The lines of the inbox as text."""
    text = client.get("/admin/stator/event/waiting/").content.decode()
    lines = re.findall(r"<tr>\s*<td.*?</tr>", text, re.DOTALL)
    return [" ".join(unescape(re.sub("<[^>]*>", " ", line)).split()) for line in lines]


def test_inbox_has_the_objects_that_wait_for_the_user_now(admin_client: Client) -> None:
    anna = User.objects.create_user("anna", is_superuser=True)
    first, mine, both = put(Expense), put(Expense, submitter="admin"), put(Expense)
    put(Expense, state="approved")
    both.stator.send("approve", {"note": "ok"}, by=anna)
    again = put(Expense)
    again.stator.send("approve", {"note": "ok"}, by=User.objects.get(username="admin"))
    lines = inbox(admin_client)
    assert ["approve: anna" in line for line in lines] == [False, False, True, False]
    assert ["approve: admin" in line for line in lines] == [False, False, False, True]
    assert [" approve\u2026" in line.replace("Withdraw approve", "") for line in lines] == [True, False, True, False]
    assert ["reject\u2026" in line for line in lines] == [True] * 4
    assert all("times out to escalated in" in line for line in lines)
    assert [str(each) in line for each, line in zip((first, mine, both, again), lines, strict=True)] == [True] * 4
    text = client_of("lena", "view_expense").get("/admin/stator/event/waiting/").content.decode()
    assert "Nothing waits for an event that you may send now." in text


def test_inbox_finds_what_waits_behind_many_that_do_not(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PART", 2)
    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "unless", lambda expense, by: expense.waits)
    for _ in range(3):
        put(Expense, submitter="admin", waits=True)
    put(Expense)
    assert len(inbox(admin_client)) == 1


def test_inbox_says_that_more_wait_and_does_not_read_them(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SHOWN", 1)
    monkeypatch.setattr(waiting, "PART", 1)
    asked: list[Any] = []
    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "unless", lambda expense, by: asked.append(expense.pk))
    *_, last = (put(Expense, state_changed=ago(500 - number)) for number in range(3))
    text = admin_client.get("/admin/stator/event/waiting/").content.decode()
    assert "These wait for longest; more follow when they are answered." in text
    assert last.pk not in asked


def test_inbox_has_the_longest_waiting_first_whatever_holds_them(admin_client: Client) -> None:
    ready, resting = put(Expense, state_changed=ago(500)), put(Expense, state_changed=ago(400))
    held = put(Expense, state_changed=ago(600), state_claim=uuid4(), state_locked_until=ago(-60))
    raw(Expense).filter(pk=ready.pk).update(state_ready=True)
    lines = inbox(admin_client)
    assert [str(each) in line for each, line in zip((held, ready, resting), lines, strict=True)] == [True] * 3


def test_move_by_hand_says_whose_approval_it_skips_and_needs_a_reason(admin_client: Client) -> None:
    expense = put(Expense)
    expense.stator.send("approve", {"note": "ok"}, by=User.objects.get(username="admin"))
    asked = act(admin_client, "stator_move", expense, url=URL, state="paid")
    said = "the event approve from 2 senders who are users with testapp.change_expense: admin; so far from admin."
    assert said in asked.content.decode()
    given = {"state": "paid", "stator_confirmed": "1", "stator_seen": seen_in(asked)}
    again = act(admin_client, "stator_move", expense, url=URL, **given).content.decode()
    assert ("This field is required." in again, row(expense).state) == (True, "submitted")
    act(admin_client, "stator_move", expense, url=URL, **given, reason="the board has decided")
    assert row(expense).state == "paid"
    # Where it skips none, it needs none.
    expense = put(Expense, state="escalated")
    asked = act(admin_client, "stator_move", expense, url=URL, state="paid")
    assert "A move skips" not in asked.content.decode()
    act(admin_client, "stator_move", expense, url=URL, **given | {"stator_seen": seen_in(asked)})
    assert row(expense).state == "paid"


def withdraw(client: Client, expense: Expense, **data: str) -> Any:
    """Ask to withdraw an approval of the object, and confirm that."""
    given = {"stator_event": "approve", "_selected_action": expense.pk, "stator_object": "1", **data}
    asked = client.post(f"{URL}{expense.pk}/stator/withdraw/", given)
    assert (asked.status_code, 'name="reason"' in asked.content.decode()) == (200, True)
    return client.post(f"{URL}{expense.pk}/stator/withdraw/", {**given, "stator_confirmed": "1"})


def test_answer_is_withdrawn_from_the_page_while_others_are_missing(admin_client: Client) -> None:
    expense, other = put(Expense), put(Expense)
    expense.stator.send("approve", {"note": "ok"}, by=User.objects.get(username="admin"))
    other.stator.send("approve", {"note": "ok"}, by=User.objects.create_user("anna", is_superuser=True))
    shown = ["stator/withdraw/" in part(live(admin_client, each, URL), "acts") for each in (expense, other)]
    assert shown == [True, False]
    answer = withdraw(admin_client, expense, reason="too early")
    assert answer.url == f"{URL}{expense.pk}/change/"
    assert "Your approve is withdrawn. 2 senders more needed." in admin_client.get(answer.url).content.decode()
    told = History.objects.filter(object_pk=expense.pk).latest("pk")
    assert (told.actor, told.reason.endswith("too early (withdrawn)")) == ("admin", True)
    assert "Withdrew approve. too early" in admin_client.get(f"{URL}{expense.pk}/history/").content.decode()
    assert [event.sender for event in Event.objects.all()] == ["anna"]
    assert "stator/withdraw/" not in live(admin_client, expense, URL)


def test_nobody_withdraws_the_answer_of_somebody_else(admin_client: Client) -> None:
    expense = put(Expense)
    expense.stator.send("approve", {"note": "ok"}, by=User.objects.create_user("anna", is_superuser=True))
    withdraw(admin_client, expense)
    assert "has no &#x27;approve&#x27; from admin" in admin_client.get(URL).content.decode()
    assert Event.objects.count() == 1
    assert admin_client.get(f"{URL}{expense.pk}/stator/withdraw/").status_code == 405
    stranger = client_of("lena")
    assert stranger.post(f"{URL}{expense.pk}/stator/withdraw/", {"stator_event": "approve"}).status_code == 403


def make_link(client: Client, expense: Expense, address: str = "eve@example.org", **data: str) -> Any:
    """Ask for a link to approve an object, and fill in the form."""
    url = f"{URL}{expense.pk}/stator/link/"
    given = {"stator_event": "approve", "_selected_action": expense.pk, "stator_object": "1"}
    assert 'name="address"' in client.post(url, given).content.decode()
    return client.post(url, {**given, "stator_confirmed": "1", "address": address, "hours": "48", **data})


def test_link_is_shown_once_and_stored_nowhere(admin_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    expense = put(Expense)
    assert "approve by link&hellip;" in part(live(admin_client, expense, URL), "acts")
    text = make_link(admin_client, expense).content.decode()
    [link] = re.findall(r'value="http://testserver(/stator/answer/[^"]*)"', text)
    assert "eve@example.org can send approve" in text
    assert "You grant the permission testapp.change_expense for it." in text
    assert 'name="note"' in Client().get(link).content.decode()
    assert "1 more needed" in Client().post(link, {"note": "ok"}).content.decode()
    assert [event.sender for event in Event.objects.all()] == ["eve@example.org"]
    told = admin_client.get(f"{URL}{expense.pk}/history/").content.decode()
    assert "Made a link: eve@example.org may send approve until " in told
    secret = link.split("/")[-2][:40]
    assert secret not in caplog.text + told + live(admin_client, expense, URL) + str([*History.objects.values()])


def test_links_are_made_only_by_those_who_may_send_the_event(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = put(Expense, submitter="ina"), put(Expense)
    ina, lena = client_of("ina", "view_expense", "change_expense"), client_of("lena", "view_expense")
    for client, expense in ((ina, mine), (lena, other)):
        assert "approve by link" not in live(client, expense, URL)
        assert client.post(f"{URL}{expense.pk}/stator/link/", {"stator_event": "approve"}).status_code == 403
    monkeypatch.setattr(StatorAdmin, "has_link_permission", lambda *of: False)
    assert "approve by link" not in live(admin_client, other, URL)


def test_link_is_for_no_user_no_submitter_and_nobody_who_has_answered(admin_client: Client) -> None:
    User.objects.create_user("anna@example.org")
    expense = put(Expense, submitter="ina@example.org")
    expense.stator.send("approve", {"note": "ok"}, by=Sender("eve@example.org", permitted=True))
    for address, why in (
        ("Anna@example.org", "is a user here, who answers in the admin"),
        ("ina@example.org", "ina@example.org may not send"),
        ("eve@example.org", "has &#x27;approve&#x27; from eve@example.org already"),
        ("eve", "Enter a valid email address"),
    ):
        text = make_link(admin_client, expense, address).content.decode()
        assert (why in text, "/stator/answer/" in text) == (True, False), text
