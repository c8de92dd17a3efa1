"""The button that undoes an action of operators: who gets it, what it asks, and what it says."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from stator.admin import StatorAdmin, bulk
from stator.extensions.pauses.models import is_paused_by_name
from stator.extensions.undo.admin import pages as undoing
from stator.models import Action, History, Now
from stator.undo import undo
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.requests import LIST, act, confirm, move, set_columns
from tests.stator.admin.test_bulk import pages, said
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

WRONG = {"stator_confirmed": "1", "reason": "wrong filter"}


def address(action: Action) -> str:
    return f"{LIST}stator/undo/{action.pk}/"


def moved(client: Client, number: int = 2) -> tuple[list[Parcel], Action]:
    parcels = [Parcel.objects.create() for _ in range(number)]
    move(client, *parcels)
    return parcels, Action.objects.latest("pk")


def states() -> list[str]:
    return sorted(Parcel.objects.values_list("state", flat=True))


def test_wrong_move_is_undone_from_the_list(admin_client: Client) -> None:
    parcels, action = moved(admin_client, 3)
    parcels[2].transition_perform("sent")
    text = admin_client.get(LIST).content.decode()
    assert f'action="{address(action)}"' in text
    assert "move by admin (because), 3 parcels." in text
    asked = admin_client.get(address(action)).content.decode()
    assert "3 objects go back to what they were before this: move by admin (because)." in asked
    assert states() == ["delivered", "delivered", "sent"]
    assert admin_client.post(address(action), WRONG).status_code == 302
    assert states() == ["packed", "packed", "sent"]
    assert f"2 parcels went back. 1 was left alone: {parcels[2].pk} is in sent now." in said(admin_client)
    entry = History.objects.latest("pk")
    assert (entry.actor, entry.reason) == ("admin", f"undid action {action.pk}: wrong filter")
    text = admin_client.get(LIST).content.decode()
    assert f'action="{address(action)}"' not in text, "it is undone"
    assert f"undo of action {action.pk} by admin (wrong filter), 2 parcels." in text


def test_all_of_a_filter_are_one_action_that_is_undone_a_part_in_each_request(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    monkeypatch.setattr(undoing, "AT_ONCE", 2)
    monkeypatch.setattr(undoing, "BATCH", 1)
    monkeypatch.setattr("stator.extensions.undo.undoing.BATCH", 1)
    parcels = [Parcel.objects.create() for _ in range(5)]
    for parcel in parcels:
        set_columns(parcel, state_failures=2, state_ready=False)
    retry = {"action": "stator_retry", "index": "0", "_selected_action": parcels[0].pk, "select_across": "1"}
    list(pages(admin_client, f"{LIST}?condition=failing", retry))
    action = Action.objects.get()
    assert action.count == 5
    assert len(list(pages(admin_client, address(action), WRONG))) == 2
    assert said(admin_client).startswith("5 parcels went back.")
    assert Parcel.stator.failed().count() == 5
    assert Action.objects.get(kind="undo").count == 5


def test_only_those_who_may_act_may_undo(admin_client: Client, login: Login) -> None:
    parcels, action = moved(admin_client)
    act(admin_client, "stator_retry", *parcels)
    other = login("view_parcel", "change_parcel")
    assert address(action) not in other.get(LIST).content.decode()
    assert other.get(address(action)).status_code == 403
    assert other.post(address(action), WRONG).status_code == 403
    assert login("view_parcel", "force_parcel").post(address(action), WRONG).status_code == 302
    assert states() == ["packed", "packed"]


def test_objects_that_the_user_may_not_change_are_left(admin_client: Client, login: Login, replace: Replace) -> None:
    parcels, action = moved(admin_client, 3)

    class Own(StatorAdmin):
        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).exclude(pk=parcels[0].pk)

        def has_move_permission(self, request: Any, obj: Any = None) -> bool:
            return obj is None or obj.pk != parcels[1].pk

    replace(Own)
    client = login("view_parcel", "change_parcel", "force_parcel")
    client.post(address(action), WRONG)
    assert {parcel.pk: Parcel.objects.get(pk=parcel.pk).state for parcel in parcels} == {
        parcels[0].pk: "delivered", parcels[1].pk: "delivered", parcels[2].pk: "packed",
    }  # fmt: skip
    assert f"{parcels[0].pk} is not yours to change" in said(client)


def test_action_that_is_older_than_an_hour_is_not_undone(admin_client: Client) -> None:
    _, action = moved(admin_client)
    Action.objects.update(at=Now() - timedelta(seconds=3700))
    assert admin_client.post(address(action), WRONG).status_code == 302
    assert said(admin_client).startswith(f"Action {action.pk} cannot be undone: it is of another model, unknown, or")
    assert states() == ["delivered", "delivered"]


@pytest.mark.needs("pauses")
def test_undo_of_a_pause_leaves_objects_that_the_user_does_not_see_paused(
    admin_client: Client, login: Login, replace: Replace
) -> None:
    seen, hidden = Parcel.objects.create(), Parcel.objects.create()
    chosen = {"action": "stator_pause", "index": "0", "_selected_action": [seen.pk, hidden.pk], "seconds": "60"}
    confirm(admin_client, LIST, chosen)
    by_name = Action.objects.latest("pk")
    Parcel.stator.pause(where={"state": "packed"}, actor="admin")
    by_lookup = Action.objects.latest("pk")

    class Own(StatorAdmin):
        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).exclude(pk=hidden.pk)

    replace(Own)
    client = login("view_parcel", "change_parcel")
    client.post(address(by_name), WRONG)
    assert f"{hidden.pk} is not yours to change" in said(client)
    assert (is_named(seen), is_named(hidden)) == (False, True)
    client.post(address(by_lookup), WRONG)
    assert "holds objects that are not yours to change" in said(client)
    assert any(reason.code == "paused" for reason in seen.explain())
    # From a shell, all of it ends.
    for action in (by_name, by_lookup):
        undo(action.pk, "default", actor="root", reason="")
    assert not any(reason.code == "paused" for parcel in (seen, hidden) for reason in parcel.explain())


def is_named(parcel: Parcel) -> bool:
    return is_paused_by_name(Parcel, "default", parcel.pk)
