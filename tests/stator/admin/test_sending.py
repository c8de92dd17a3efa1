"""Events are sent from an object's page and from lists, by those who may."""

import re
from copy import copy
from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import Permission, User
from django.test import Client

from stator.admin import sending
from stator.models import Event, History
from stator.rows.transitions import in_batches
from tests.stator.admin.requests import act, live, part, seen_in
from tests.stator.making import put, row
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


def test_page_has_a_button_for_each_event_that_the_state_takes(admin_client: Client) -> None:
    acts = part(live(admin_client, put(Expense), URL), "acts")
    assert [name in acts for name in ('value="approve"', 'value="reject"', 'value="cancel"')] == [True, True, False]


def test_users_see_and_send_only_what_they_may(admin_client: Client) -> None:
    expense = put(Expense)
    approver = client_of("anna", "view_expense", "change_expense")
    looker = client_of("lena", "view_expense")
    assert 'value="approve"' in live(approver, expense, URL)
    assert 'name="stator_event"' not in live(looker, expense, URL)
    act(looker, "stator_send", expense, url=URL, stator_event="reject", stator_confirmed="1", stator_asked="reject")
    assert row(expense).state == "submitted"


def test_form_of_the_event_is_asked_for_and_checked(admin_client: Client) -> None:
    expense = put(Expense)
    asked = act(admin_client, "stator_send", expense, url=URL, stator_event="approve")
    assert 'name="note"' in asked.content.decode()
    again = send(admin_client, "approve", expense, note="x" * 21)
    assert "Ensure this value has at most 20 characters" in again.content.decode()
    assert not Event.objects.exists()
    send(admin_client, "approve", expense, note="fine", amount="3.5", stator_reason="as agreed")
    event = Event.objects.get()
    assert (event.sender, event.payload) == ("admin", {"note": "fine", "amount": "3.5"})
    told = History.objects.get().reason
    assert told == 'approve {"note": "fine", "amount": "3.5"}: as agreed (1 of 2)'
    assert "Sent approve. as agreed" in admin_client.get(f"{URL}{expense.pk}/history/").content.decode()


def test_refusal_of_one_object_is_shown(admin_client: Client) -> None:
    expense = put(Expense, submitter="admin")
    send(admin_client, "approve", expense, note="mine")
    assert "Nothing was done: admin may not send" in admin_client.get(URL).content.decode()
    assert row(expense).state == "submitted"


def test_event_is_chosen_for_many_and_those_that_do_not_take_it_are_left_alone(admin_client: Client) -> None:
    expenses = [put(Expense), put(Expense), put(Expense, state="paid")]
    chosen = act(admin_client, "stator_send", *expenses, url=URL).content.decode()
    assert "3 expenses are chosen." in chosen
    assert '<option value="reject">' in chosen
    send(admin_client, "reject", *expenses, payload='{"why": "late"}')
    assert [row(each).state for each in expenses] == ["rejected", "rejected", "paid"]
    assert "2 expenses got reject" in admin_client.get(URL).content.decode()
    assert [event.payload for event in Event.objects.all()] == [{"why": "late"}] * 2


def test_permission_is_that_of_the_event_in_the_state_of_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    other = copy(ExpenseGraph.submitted.events["reject"])
    other.state, other.permission = ExpenseGraph.escalated, "testapp.delete_expense"
    monkeypatch.setitem(ExpenseGraph.escalated.events, "reject", other)
    expenses = [put(Expense), put(Expense, state="escalated")]
    lena = client_of("lena", "view_expense", "delete_expense")
    asked = act(lena, "stator_send", *expenses, url=URL, stator_event="reject").content.decode()
    assert "1 expense will get" in asked
    send(lena, "reject", *expenses)
    assert [row(each).state for each in expenses] == ["submitted", "rejected"]


def test_permission_is_checked_again_when_the_object_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    other = copy(ExpenseGraph.submitted.events["reject"])
    other.state, other.permission = ExpenseGraph.escalated, "testapp.delete_expense"
    monkeypatch.setitem(ExpenseGraph.escalated.events, "reject", other)
    expense = put(Expense, state="escalated")

    def move_first(*args: Any, **options: Any) -> int:
        expense.transition_perform("submitted")
        return in_batches(*args, **options)

    monkeypatch.setattr(sending, "in_batches", move_first)
    send(client_of("lena", "view_expense", "delete_expense"), "reject", expense)
    assert row(expense).state == "submitted"


def test_form_with_chosen_objects_sends_their_keys(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class ChoiceForm(forms.Form):
        readers = forms.ModelMultipleChoiceField(User.objects.all())

    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "form", ChoiceForm)
    anna = User.objects.create_user("anna")
    send(admin_client, "reject", put(Expense), readers=str(anna.pk))
    assert Event.objects.get().payload == {"readers": [anna.pk]}


def test_graphs_without_events_have_no_such_action(admin_client: Client) -> None:
    assert "stator_send" not in admin_client.get("/admin/testapp/parcel/").content.decode()


def test_inbox_has_what_waits_for_the_user_with_links_to_the_lists(admin_client: Client) -> None:
    put(Expense), put(Expense), put(Expense, state="paid")
    text = admin_client.get("/admin/stator/event/waiting/").content.decode()
    lines = [" ".join(re.sub("<[^>]*>", " ", line).split()) for line in re.findall(r"<tr><td.*?</tr>", text)]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "testapp.Expense approve 2", "testapp.Expense reject 2", "testapp.Expense receipt 1",
    ]  # fmt: skip
    [url] = re.findall(r'href="([^"]*waits_for=receipt)"', text)
    assert "1 expense" in admin_client.get(url).content.decode()
    nobody = client_of("lena", "view_expense").get("/admin/stator/event/waiting/").content.decode()
    assert "Nothing waits for an event that you may send." in nobody
