"""Retry, unlock and move: what each asks, and that it acts on what was shown."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from stator.admin import StatorAdmin, actions, confirmed_snapshot
from stator.db.interface import Claim
from stator.models import History, Pause, Worker
from stator.rows import columns
from stator.rows.workers import worker_of
from tests.stator.admin.conftest import Replace
from tests.stator.admin.requests import LIST, MOVE, act, claim, move, seen_in, set_columns
from tests.stator.making import row
from tests.testapp.operators import Parcel, ParcelGraph

pytestmark = pytest.mark.django_db


class TestActs:
    def test_moving_asks_first(self, admin_client: Client) -> None:
        parcels = [Parcel.objects.create(address=f"no. {number}") for number in range(3)]
        claim(Parcel)
        response = act(admin_client, "stator_move", *parcels)
        text = response.content.decode()
        assert "3 parcels will be moved by hand" in text
        assert "1 of them is being attempted at the moment" in text
        assert all(f"parcel to no. {number} (packed)" in text for number in range(3))
        assert re.findall(r'<option value="(\w*)"', text) == ["", *Parcel.state_graph.states]
        assert set(Parcel.objects.values_list("state", flat=True)) == {"packed"}

    def test_page_sends_the_action_that_was_chosen_below_the_list(self, admin_client: Client) -> None:
        data = {"action": ["stator_retry", "stator_move"], "index": "1", "_selected_action": Parcel.objects.create().pk}
        text = admin_client.post(LIST, data).content.decode()
        assert "1 parcel will be moved by hand" in text
        assert re.findall(r'name="action" value="(\w*)"', text) == ["stator_move"]

    def test_moving_records_who_did_it_and_why(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        held = claim(Parcel)
        assert move(admin_client, parcel).status_code == 302
        parcel.refresh_from_db()
        assert (parcel.state, parcel.state_version, parcel.state_claim) == ("delivered", 1, None)
        assert not held.still_mine()
        [act] = History.objects.all()
        assert (act.source, act.to, act.actor, act.reason) == ("packed", "delivered", "admin", "because")
        history = admin_client.get(f"{LIST}{parcel.pk}/history/").content.decode()
        assert "Moved to delivered by hand. because" in history

    @pytest.mark.parametrize("data", [{"state": ""}, {"state": "nowhere"}, {"reason": "x" * 501}])
    def test_moving_asks_again_for_what_cannot_be(self, admin_client: Client, data: dict[str, str]) -> None:
        parcel = Parcel.objects.create()
        response = move(admin_client, parcel, **data)
        assert response.status_code == 200
        assert "errorlist" in response.content.decode()
        parcel.refresh_from_db()
        assert parcel.state == "packed"

    def test_states_that_only_the_framework_enters_are_not_offered_and_refused(
        self, admin_client: Client, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(ParcelGraph.delivered, "enter_by_hand", False)
        parcel = Parcel.objects.create()
        names = [name for name in Parcel.state_graph.states if name != "delivered"]
        asked = act(admin_client, "stator_move", parcel).content.decode()
        assert re.findall(r'<option value="(\w*)"', asked) == ["", *names]
        for across in ("0", "1"):
            told = move(admin_client, parcel, select_across=across).content.decode()
            assert "delivered is not a state to which objects can be moved by hand. Choose packed or" in told
        parcel.refresh_from_db()
        assert parcel.state == "packed"
        assert not History.objects.exists()

    def test_rows_that_the_project_hides_cannot_be_reached(self, admin_client: Client, replace: Replace) -> None:
        class Hiding(StatorAdmin):
            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).exclude(address="secret")

        replace(Hiding)
        secret, other = Parcel.objects.create(address="secret"), Parcel.objects.create()
        assert admin_client.get(f"{LIST}{secret.pk}/stator/").status_code == 404
        for name in ("stator_retry", "stator_unlock", "stator_move"):
            act(admin_client, name, secret, other)
        move(admin_client, secret, other, select_across="1")
        secret.refresh_from_db()
        other.refresh_from_db()
        assert (secret.state, other.state) == ("packed", "delivered")

    def test_a_project_may_have_actions_of_its_own_or_none(self) -> None:
        def hello(model_admin: Any, request: Any, queryset: Any) -> None: ...

        class WithActions(StatorAdmin):
            actions = [hello]

        class Without(StatorAdmin):
            actions = None

        site = admin.AdminSite()
        assert WithActions(Parcel, site).actions == [hello, *actions.ACTIONS]
        assert Without(Parcel, site).actions is None
        assert StatorAdmin.actions == ()


# Unlock: what it asks before it ends a claim whose attempt may still run


def held_by_a_worker(**columns_of_worker: object) -> tuple[Parcel, Claim]:
    """A parcel that a worker process holds."""
    parcel = Parcel.objects.create()
    held = claim(Parcel)
    worker = worker_of(held.token)
    Worker.objects.create(id=worker, host="web-1", pid=41, models=["testapp.parcel"], **columns_of_worker)
    return parcel, held


def confirm(client: Client, asked: object, parcel: Parcel, **data: str) -> str:
    posted = {"action": "stator_unlock", "index": "0", "_selected_action": [parcel.pk], "stator_confirmed": "1"}
    return client.post(LIST, {**posted, "stator_seen": seen_in(asked), **data}, follow=True).content.decode()


def test_tells_before_that_a_live_worker_runs_it_and_unlocked_and_paused_no_worker_claims_it(
    admin_client: Client,
) -> None:
    parcel, held = held_by_a_worker()
    asked = act(admin_client, "stator_unlock", parcel)
    text = asked.content.decode()
    assert re.search(rf"{parcel.pk}: attempt 1, which began \d+ s ago, is run by worker", text)
    assert "on web-1, process 41, which is alive; its lease has" in text
    assert "does not stop a handler that runs in a thread" in text
    assert 'value="Unlock and pause"' in text
    assert held.still_mine()
    told = confirm(admin_client, asked, parcel, stator_and_pause="1", reason="runs wild")
    assert "1 parcel unlocked and paused." in told
    assert not held.still_mine()
    pause = Pause.objects.active().get()
    assert (pause.where, pause.reason, pause.actor) == ({"pk__in": [parcel.pk]}, "runs wild", "admin")
    # Not even by a worker that has not read the pause.
    assert not Parcel.stator.ready().exists()
    assert row(parcel).state_next_attempt is not None


def test_claim_of_another_worker_since_is_left_alone(admin_client: Client) -> None:
    parcel, _ = held_by_a_worker()
    asked = act(admin_client, "stator_unlock", parcel)
    Parcel.stator.unlock()
    later = claim(Parcel)
    told = confirm(admin_client, asked, parcel)
    assert f"0 parcels unlocked. 1 parcel was not changed (since you were asked: {parcel.pk} was claimed anew)" in told
    assert later.still_mine()


def test_worker_that_stopped_and_whose_lease_is_over_is_not_asked_about(admin_client: Client) -> None:
    parcel, held = held_by_a_worker(stopped=columns.after(-60))
    set_columns(parcel, state_locked_until=columns.after(-10))
    assert act(admin_client, "stator_unlock", parcel).status_code == 302
    assert not held.still_mine()


# A confirmation acts only on rows that are still as they were shown, and tells which were left alone


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
