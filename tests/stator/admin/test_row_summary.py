"""The page of one object."""

import re

import pytest
from django.test import Client

from stator.rows import columns
from stator.testing import attempt
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import act, page_of
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db


class TestPage:
    def test_shows_every_column(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        text = admin_client.get(page_of(parcel)).content.decode()
        assert all(f"field-{name}" in text for name in columns.FRAMEWORK_COLUMNS)

    def test_shows_the_report_and_the_moves_by_hand(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(orders="never")
        attempt(parcel)
        parcel.transition_perform("packed", actor="somebody", reason="try once more")
        text = admin_client.get(page_of(parcel)).content.decode()
        for words in ("stator.exceptions.Fail", "no such street", "somebody", "try once more", "Traceback"):
            assert words in text

    def test_shows_the_traceback_to_those_alone_who_may_view_reports(self, login: Login) -> None:
        parcel = Parcel.objects.create(orders="never")
        attempt(parcel)
        without = login("view_parcel").get(page_of(parcel)).content.decode()
        assert "no such street" in without
        assert "raise Fail" not in without
        assert "raise Fail" in login("view_parcel", "view_report").get(page_of(parcel)).content.decode()

    @pytest.mark.parametrize(
        ("given", "buttons"),
        [
            (["view_parcel"], []),
            (["change_parcel"], ["stator_retry", "stator_pause"]),
            (["view_parcel", "force_parcel"], ["stator_move"]),
            (["change_parcel", "force_parcel"], ["stator_retry", "stator_pause", "stator_move"]),
        ],
    )
    def test_offers_what_may_be_done(self, login: Login, given: list[str], buttons: list[str]) -> None:
        text = login(*given).get(page_of(Parcel.objects.create())).content.decode()
        assert re.findall(r'name="action" value="(\w+)"', text) == buttons

    def test_an_action_leads_back_to_it(self, admin_client: Client) -> None:
        letter = Letter.objects.create(number="a/b_c")
        response = act(admin_client, "stator_retry", letter, url="/admin/testapp/letter/", stator_object="1")
        assert response["Location"] == "/admin/testapp/letter/a_2Fb_5Fc/change/"
        assert admin_client.get(response["Location"]).status_code == 200
