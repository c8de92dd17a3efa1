"""People without an account answer by a link: once, for one event and one visit of an object."""

import time

import pytest
from django.core import signing
from django.test import Client
from django.urls import reverse

from stator.exceptions import EventRefused
from stator.extensions.events import answer_links
from stator.models import Event
from tests.stator.making import change, put, row
from tests.testapp.approvals import Expense, ExpenseGraph

pytestmark = [pytest.mark.django_db, pytest.mark.needs("views")]

ANNA = "anna@example.org"


@pytest.fixture
def client():
    return Client(enforce_csrf_checks=True)


def link(expense, event="approve", by=ANNA, **options):
    return expense.stator.link(event, by=by, **options)


def told(response):
    return response.status_code, response.content.decode()


def gone(client, path):
    """The reasons of GET and POST, which are the same."""
    (status, text), (other, again) = told(client.get(path)), told(client.post(path, {"note": "ok"}))
    assert (status, other) == (410, 410)
    assert text == again
    return text


def test_link_shows_the_object_and_its_form_and_sends_once(client):
    expense = put(Expense)
    path = link(expense)
    status, text = told(client.get(path))
    assert (status, str(expense) in text, 'name="note"' in text, Event.objects.count()) == (200, True, True, 0)
    assert "This field is required" in told(client.post(path, {"note": ""}))[1]
    status, text = told(client.post(path, {"note": "ok"}))
    assert (status, "1 more needed" in text) == (200, True)
    event = Event.objects.get()
    assert (event.sender, event.payload["note"]) == (ANNA, "ok")
    assert "this link has been used" in gone(client, path)
    assert Event.objects.count() == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_link_is_for_the_object_in_its_own_database(client):
    here, there = put(Expense), put(Expense, "other")
    change(there, "other", id=here.pk)
    there.pk = here.pk
    client.post(link(there), {"note": "ok"})
    assert [Event.objects.using(alias).count() for alias in ("default", "other")] == [0, 1]


def test_link_is_of_no_use_once_it_has_expired(client, monkeypatch):
    path, now = link(put(Expense), expires=60), time.time()
    monkeypatch.setattr(answer_links.time, "time", lambda: now + 62)
    assert "this link has expired" in gone(client, path)


def test_link_is_for_one_visit_and_one_life(client):
    expense = put(Expense)
    path = link(expense)
    expense.transition_perform("rejected")
    assert "not needed any more" in gone(client, path)
    expense.transition_perform("submitted")
    assert "not needed any more" in gone(client, path)
    pk, path = expense.pk, link(expense)
    expense.delete()
    assert "is deleted" in gone(client, path)
    Expense.objects.create(pk=pk)
    assert "not needed any more" in gone(client, path)
    assert not Event.objects.exists()


def test_unless_and_count_still_apply(client):
    expense = put(Expense, submitter=ANNA)
    response = client.post(link(expense), {"note": "mine"})
    assert (response.status_code, f"{ANNA} may not send" in response.content.decode()) == (410, True)
    other = put(Expense)
    first, second = link(other), link(other)
    assert client.post(first, {"note": "ok"}).status_code == 200
    assert client.post(second, {"note": "again"}).status_code == 410
    assert client.post(link(other, by="ben"), {"note": "ok"}).status_code == 200
    assert row(other).state == "approved"


def test_move_after_the_page_was_checked_refuses_the_event():
    expense = put(Expense)
    with pytest.raises(EventRefused, match="has changed since it was asked for 'approve'; it is in submitted"):
        answer_links.send(Expense, expense.pk, "approve", {"note": "ok"}, by="anna", visit=(0, 7))


def test_link_of_a_version_that_signed_other_values_is_none(client):
    values = signing.loads(link(put(Expense)).rstrip("/").rpartition("/")[2], salt=answer_links.SALT)
    older = reverse("stator:answer", args=[signing.dumps(values[1:], salt=answer_links.SALT)])
    assert client.get(older).status_code == 404


def test_changed_link_is_none_and_no_log_has_a_link(client, caplog, monkeypatch):
    caplog.set_level("DEBUG")
    expense = put(Expense)
    path = link(expense)
    assert client.get(f"{path[:-3]}x/").status_code == 404
    client.post(path, {"note": "ok"})
    client.get(path)
    assert client.put(path).status_code == 405
    monkeypatch.setattr(ExpenseGraph.submitted.events["approve"], "count", lambda expense: 0)
    assert client.post(link(expense, by="ben"), {"note": "ok"}).status_code == 500
    assert "stator.answer_failed" in caplog.messages
    secret = path.split("/")[-2]
    # Both links begin alike.
    assert secret[:20] not in caplog.text


def test_wrong_links_are_refused_when_they_are_made():
    expense = put(Expense)
    with pytest.raises(EventRefused, match="does not take 'cancel' there"):
        link(expense, "cancel")
    with pytest.raises(ValueError, match="a link is for one sender; pass by="):
        link(expense, by="")
    with pytest.raises(ValueError, match="must be a number of seconds above 0"):
        link(expense, expires=0)
