"""Retry, unlock and move."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from stator.admin import StatorAdmin, actions
from stator.models import History
from tests.stator.admin.conftest import Replace
from tests.stator.admin.requests import LIST, MOVE, act, claim, move
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
        for name in ("stator_retry", "stator_unlock", "stator_move"):
            act(admin_client, name, secret, other)
        move(admin_client, secret, other, select_across="1")
        secret.refresh_from_db()
        other.refresh_from_db()
        assert (secret.state, other.state) == ("packed", "delivered")

    def test_a_get_changes_nothing(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        admin_client.get(LIST, {**MOVE, "_selected_action": parcel.pk})
        parcel.refresh_from_db()
        assert parcel.state == "packed"

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
