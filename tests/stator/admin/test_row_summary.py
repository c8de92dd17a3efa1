"""The page of one object: its columns, its picture, and links to other pages."""

import re
from typing import Any

import pytest
from django.test import Client

from stator.models import Worker
from stator.rows import columns
from stator.rows.workers import worker_of
from stator.testing import attempt
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import act, claim, live, page_of, part, set_columns
from tests.testapp.operators import Letter, Parcel
from tests.testapp.waiting import Build, Rollout

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


# The graph of a row as a picture on its page


class TestGraph:
    def test_shows_where_it_is_and_how_it_came(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        parcel.transition_perform("stamped", actor="ada")
        parcel.transition_perform("delivered", actor="ada")
        text = part(live(admin_client, parcel), "graph")
        boxes = re.findall(r'<g class="stator-box ([^"]+)">.*?<text[^>]*>(\w+)<', text)
        here = {name for classes, name in boxes if "stator-here" in classes}
        been = {name for classes, name in boxes if "stator-been" in classes}
        assert here == {"delivered"}
        assert been == {"packed", "stamped", "delivered"}
        assert "you are here" in text
        assert re.findall(r"<title>(\w+) &#8594; (\w+)[^<]*; it went here<", text) == [
            ("packed", "stamped"), ("stamped", "delivered"),
        ]  # fmt: skip
        assert "stamped &#8594; delivered (by hand); it went here" in text
        assert "timeout 7 d" in text

    def test_state_that_no_code_knows_is_drawn(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        set_columns(parcel, state="gone away")
        text = part(live(admin_client, parcel), "graph")
        assert re.search(r"stator-box stator-unknown stator-here[^\n]*>gone away<", text)

    def test_numbers_are_those_of_svg_in_any_language(self, admin_client: Client, settings: Any) -> None:
        settings.LANGUAGE_CODE = "de"
        settings.USE_THOUSAND_SEPARATOR = True
        text = part(live(admin_client, Parcel.objects.create()), "graph")
        for number in re.findall(r' (?:x|y|width|height)="([^"]*)"', text):
            assert re.fullmatch(r"\d+(\.\d+)?", number)


# Links from page to page: workers, events and awaited objects


class TestLinks:
    def test_worker_and_what_it_holds_lead_to_each_other(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        worker = Worker.objects.create(
            id=worker_of(claim(Parcel).token), host="web-1", pid=41, models=["testapp.parcel", "testapp.gone"]
        )
        address = f"/admin/stator/worker/{worker.pk}/change/"
        assert f'<a href="{address}">Worker {worker.pk}</a>' in admin_client.get(page_of(parcel)).content.decode()
        assert f'testapp.Parcel <a href="{page_of(parcel)}">{parcel.pk}</a> in packed' in (
            admin_client.get(address).content.decode()
        )

    def test_event_leads_to_its_object(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(orders="fail")
        attempt(parcel)
        Parcel.stator.retry(actor="ada")
        for name in ("report", "history"):
            assert f'<a href="{page_of(parcel)}">{parcel.pk}</a>' in (
                admin_client.get(f"/admin/stator/{name}/").content.decode()
            )

    def test_waiting_object_leads_to_the_awaited_one(self, admin_client: Client) -> None:
        build = Build.objects.create()
        rollout = Rollout.objects.create(build=build)
        text = admin_client.get(f"/admin/testapp/rollout/{rollout.pk}/change/").content.decode()
        assert f'<a href="/admin/testapp/build/{build.pk}/change/">testapp.Build {build.pk}</a>' in text
