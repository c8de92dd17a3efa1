"""The live part of the page of an object."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.admin import StatorAdmin
from stator.explain.kinds import kind_of
from stator.models import Pause
from stator.rows.progress import keep_progress, reached
from stator.testing import attempt
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.requests import LIST, act, live, part, set_columns
from tests.stator.making import LEASED, ago, put
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def codes(text: str) -> list[str]:
    return re.findall(r'data-stator-code="(\w+)"', text)


class TestWhy:
    def test_says_first_things_first_and_what_to_do(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(orders="fail", address="no such street")
        attempt(parcel)
        text = part(live(admin_client, parcel), "why")
        assert codes(text) == ["backoff", "no_worker"]
        assert "Backing off after 1 error, the last one ValueError: no such street" in text
        assert kind_of("backoff").remedy in text
        assert re.search(r"<dt>Next attempt</dt><dd>in \d+ s</dd>", text)

    def test_running_attempt_has_a_bar_here_and_in_the_list(self, admin_client: Client) -> None:
        held = put(Parcel, **LEASED, state_attempted=ago(90))
        Parcel.objects.create()
        said = (held.pk, held.state_claim, reached(40, 100, "page 40"))
        keep_progress("default", "testapp.parcel", [said])
        bar = '<progress max="100" value="40" aria-label="Progress"></progress>'
        text = part(live(admin_client, held), "why")
        assert bar in text
        assert "Done: 40 of 100 (40 %), page 40." in text
        listed = admin_client.get(LIST).text
        assert listed.count("<progress ") == 1
        assert "40 of 100 (40 %), page 40" in listed

    def test_row_that_is_gone_is_not_found(self, admin_client: Client) -> None:
        assert admin_client.get(f"{LIST}99/stator/").status_code == 404
        assert admin_client.get(f"{LIST}nonsense/stator/").status_code == 404

    def test_a_project_that_hides_rows_hides_them_here(self, admin_client: Client, replace: Replace) -> None:
        class Own(StatorAdmin):
            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).exclude(address="secret")

        replace(Own)
        secret = Parcel.objects.create(address="secret")
        assert admin_client.get(f"{LIST}{secret.pk}/stator/").status_code == 404


class TestButtons:
    def moves(self, text: str) -> list[str]:
        return re.findall(r'name="state" value="(\w*)"', text)

    def test_offers_the_moves_of_the_graph_then_any_other(self, admin_client: Client) -> None:
        assert self.moves(live(admin_client, Parcel.objects.create())) == ["stamped", "returned", ""]

    def test_offers_any_state_to_a_row_in_an_unknown_one(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        set_columns(parcel, state="gone")
        assert self.moves(live(admin_client, parcel)) == [""]

    def test_offers_no_move_to_whom_it_is_not_allowed(self, login: Login) -> None:
        parcel = Parcel.objects.create()
        assert self.moves(live(login("change_parcel"), parcel)) == []
        assert self.moves(live(login("view_parcel", "force_parcel"), parcel)) == ["stamped", "returned", ""]

    def test_row_that_is_paused_by_name_is_resumed(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        Parcel.stator.pause(where={"pk__in": [parcel.pk]})
        text = live(admin_client, parcel)
        assert re.findall(r'name="action" value="(\w+)"', text) == ["stator_retry", "stator_resume", "stator_move"]

    def test_pause_that_holds_it_is_ended_from_its_page_and_from_its_list(self, login: Login) -> None:
        parcel = Parcel.objects.create()
        client = login("change_parcel")
        page = f"/admin/testapp/parcel/{parcel.pk}/change/"
        for begun_at in (page, "/admin/testapp/parcel/?state=packed"):
            Parcel.stator.pause(state="packed")
            text = client.get(begun_at).content.decode()
            form = re.search(r'<form method="post" action="([^"]*)" class="stator-end">(.*?)</form>', text, re.DOTALL)
            assert form is not None
            assert "Resume packed" in form[2]
            given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2]))
            answer = client.post(form[1], given)
            # One is back where one was.
            assert (answer.status_code, answer.headers["Location"]) == (302, begun_at)
        assert not Pause.objects.active().exists()
        Parcel.stator.pause(state="packed")
        assert "stator-end" not in login("view_parcel").get(page).content.decode()

    def test_no_address_of_another_site_is_gone_back_to(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        answer = act(admin_client, "stator_retry", parcel, stator_back="https://example.com/")
        assert answer.headers["Location"].startswith("/admin/testapp/parcel/")


def count_of(client: Client, url: str) -> int:
    client.get(url)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return len(queries)
