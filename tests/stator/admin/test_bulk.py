"""Acts on many rows: parts, counts of what was done and left alone, pauses of single objects."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client

from stator.admin import bulk
from stator.models import History
from tests.stator.admin.requests import LIST, set_columns
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

FAILING = f"{LIST}?condition=failing"


def failing(number: int, **columns: Any) -> list[Parcel]:
    parcels = [Parcel.objects.create() for _ in range(number)]
    for parcel in parcels:
        set_columns(parcel, state_failures=2, state_ready=False, **columns)
    return parcels


def said(client: Client) -> str:
    """Return the messages on the next page."""
    *_, message = re.findall(r'<li class="(?:success|warning|error)">([^<]+)</li>', client.get(LIST).content.decode())
    return message


def pages(client: Client, url: str, data: dict[str, Any]) -> Iterator[str]:
    """Send the form, and the form of each page that comes back, until none does."""
    while (response := client.post(url, data)).status_code == 200:
        text = response.content.decode()
        yield text
        form = text.split("data-stator-go-on")[1]
        data = {
            name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
        }
    assert response.status_code == 302


class TestParts:
    @pytest.fixture(autouse=True)
    def _two_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bulk, "AT_ONCE", 2)

    @pytest.mark.needs("problems")
    def test_all_of_a_filter_are_done_a_part_in_each_request(self, admin_client: Client) -> None:
        calm = Parcel.objects.create()
        set_columns(calm, state_ready=False)
        failing(5)
        data = {"action": "stator_retry", "index": "0", "_selected_action": calm.pk, "select_across": "1"}
        shown = []
        for text in pages(admin_client, FAILING, data):
            shown.append(re.findall(r"<strong>([\d,]+)</strong>", text))
            assert "Of 5 parcels so far:" in text, "those that are done already count, though the filter has lost them"
            assert Parcel.stator.failed().count() == 5 - int(shown[-1][0])
        assert shown == [["2"], ["4"]]
        assert said(admin_client) == (
            "5 parcels are due now. 1 of the 1 object looked at is not attempted yet: 1 without a live worker."
        )
        assert Parcel.stator.ready().count() == 5
        assert History.objects.filter(actor="admin", reason="retried").count() == 5

    def test_rows_that_are_left_alone_are_counted_over_all_parts(self, admin_client: Client) -> None:
        parcels = failing(5)
        for parcel in parcels[::2]:
            set_columns(parcel, state="returned")
        data = {"action": "stator_retry", "index": "0", "_selected_action": "0", "select_across": "1"}
        list(pages(admin_client, FAILING, data))
        assert said(admin_client).startswith("2 parcels are due now. 3 parcels were not changed (held by")

    def test_forged_progress_is_a_bad_request(self, admin_client: Client) -> None:
        failing(1)
        data = {"action": "stator_retry", "index": "0", "_selected_action": "0", "select_across": "1"}
        for forged in ({"stator_after": "x"}, {"stator_done": "x"}, {"stator_left": "-1"}):
            assert admin_client.post(LIST, {**data, **forged}).status_code == 400
        assert Parcel.stator.failed().count() == 1


class TestList:
    def test_tells_what_holds_up_all_rows(self, admin_client: Client) -> None:
        Parcel.objects.create()
        Parcel.stator.pause(state="packed", reason="the van is broken", actor="ada")
        text = admin_client.get(LIST).content.decode()
        assert "No live worker serves parcels" in text
        assert "the van is broken" in text
