"""Search over all lists, from the overview."""

import pytest
from django.test import Client

from tests.stator.admin.conftest import Login
from tests.stator.making import put
from tests.stator.overviews import URL, failing, text_of, worker
from tests.tasks.making import make_queue, make_task
from tests.testapp.operators import Parcel
from tests.testapp.waiting import Build

pytestmark = pytest.mark.django_db


def test_finds_objects_by_key_and_errors_by_text(admin_client: Client) -> None:
    parcel = failing(message="connection refused by the label printer")
    page = admin_client.get(f"{URL}?q={parcel.pk}").text
    assert f'<a href="/admin/testapp/parcel/{parcel.pk}/change/">' in page
    assert "connection refused by the label printer" in text_of(admin_client, f"{URL}?q=LABEL+printer")


def test_finds_tasks_queues_and_workers(admin_client: Client) -> None:
    make_task(make_queue("encode"), "pending", key="film-7")
    worker(name="mailer-1")
    for words, told in (("film-7", "tasks.Task"), ("enco", "tasks.Queue"), ("mailer", "stator.Worker")):
        assert told in text_of(admin_client, f"{URL}?q={words}", part="found")


def test_shows_nothing_that_the_user_may_not_see(login: Login) -> None:
    parcel = failing(message="a secret")
    put(Build, pk=parcel.pk, state="checked")
    client = login("view_overview", "view_build")
    text = text_of(client, f"{URL}?q={parcel.pk}", part="found")
    assert "testapp.Build" in text
    assert "testapp.Parcel" not in text
    assert "Nothing was found" in text_of(client, f"{URL}?q=secret", part="found")


def test_any_words_are_answered(admin_client: Client) -> None:
    put(Parcel)
    for words in ("%00", "9" * 40):
        assert "Nothing was found" in text_of(admin_client, f"{URL}?q={words}")
