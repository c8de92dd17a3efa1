"""A confirmation acts only on rows that are still as they were shown, and tells which were left alone."""

from typing import Any

import pytest
from django.test import Client

from stator.admin import confirmed_snapshot
from tests.stator.admin.requests import LIST, MOVE, act, claim, seen_in
from tests.stator.making import row
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def confirmed(client: Client, asked: Any, *parcels: Parcel, url: str = LIST, **data: str) -> str:
    """Confirm what was asked, and return what the next page says."""
    chosen = {**MOVE, "_selected_action": [parcel.pk for parcel in parcels], "stator_seen": seen_in(asked), **data}
    return client.post(url, chosen, follow=True).content.decode()


def test_object_that_moved_since_it_was_shown_is_left_alone_and_named(admin_client: Client) -> None:
    one, other = Parcel.objects.create(), Parcel.objects.create()
    asked = act(admin_client, "stator_move", one, other)
    one.transition_perform("sent", actor="bob")
    told = confirmed(admin_client, asked, one, other)
    assert (row(one).state, row(other).state) == ("sent", "delivered")
    assert f"1 parcel moved to delivered. 1 parcel was not changed (since you were asked: {one.pk} is in sent" in told


def test_object_that_left_the_filter_or_is_gone_is_named(admin_client: Client) -> None:
    one, gone, url = Parcel.objects.create(), Parcel.objects.create(), f"{LIST}?state__exact=packed"
    pk = gone.pk
    asked = act(admin_client, "stator_move", one, gone, url=url)
    one.transition_perform("sent")
    gone.delete()
    gone.pk = pk
    told = confirmed(admin_client, asked, one, gone, url=url)
    assert f"2 parcels were not changed (since you were asked: {one.pk} is in sent now, {pk} is gone)" in told
    assert row(one).state == "sent"


def test_claim_in_between_is_no_move(admin_client: Client) -> None:
    parcel = Parcel.objects.create()
    asked = act(admin_client, "stator_move", parcel)
    claim(Parcel)
    confirmed(admin_client, asked, parcel)
    assert row(parcel).state == "delivered"


@pytest.mark.parametrize("exact", [0, 1000])
def test_all_rows_of_a_filter_are_those_that_were_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, exact: int
) -> None:
    monkeypatch.setattr(confirmed_snapshot, "EXACT", exact)
    one, other = Parcel.objects.create(), Parcel.objects.create()
    asked = act(admin_client, "stator_move", url=LIST, select_across="1", _selected_action="0")
    one.transition_perform("sent")
    later = Parcel.objects.create()
    told = confirmed(admin_client, asked, select_across="1", _selected_action="0")
    assert [row(each).state for each in (one, other, later)] == ["sent", "delivered", "packed"]
    assert "1 parcel moved to delivered." in told
    assert "not changed" in told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "[]",
        "{}",
        '{"rows": {"x": [1, 2]}}',
        '{"rows": {"1": 3}}',
        '{"at": "now", "states": []}',
        "[" * 9999,
    ],
)
def test_what_says_not_what_was_shown_is_asked_again(admin_client: Client, text: str) -> None:
    parcel = Parcel.objects.create()
    posted = {**MOVE, "_selected_action": [parcel.pk], "stator_seen": text}
    answer = admin_client.post(LIST, posted)
    assert answer.status_code == 200
    assert "will be moved by hand" in answer.content.decode()
    assert row(parcel).state == "packed"
