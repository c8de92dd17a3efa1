"""Who may do what, and what no form can do."""

import re
from typing import Any

import pytest
from django.test import Client

from stator.admin import StatorAdmin
from stator.testing import attempt
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.requests import LIST, act, move, page_of
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestPermissions:
    """Who may do what: the answer to each request, and whether the row has moved or become ready."""

    @pytest.mark.parametrize(
        ("given", "seen", "retried", "moved"),
        [
            ((), 403, 403, 403),
            (("view_parcel",), 200, 403, 403),
            (("change_parcel",), 200, 302, 403),
            (("view_parcel", "force_parcel"), 200, 403, 302),
            (("force_parcel",), 403, 403, 403),
            (("change_parcel", "force_parcel"), 200, 302, 302),
            (("add_parcel", "delete_parcel"), 403, 403, 403),
        ],
        ids=lambda value: "+".join(value) or "staff" if isinstance(value, tuple) else str(value),
    )
    def test_of_staff(self, login: Login, given: tuple[str, ...], seen: int, retried: int, moved: int) -> None:
        parcel = Parcel.objects.create(orders="fail")
        attempt(parcel)
        client = login(*given)
        assert client.get(LIST).status_code == seen
        assert client.get(page_of(parcel)).status_code == seen
        assert act(client, "stator_unlock", parcel).status_code == retried
        assert act(client, "stator_retry", parcel).status_code == retried
        assert Parcel.stator.ready().exists() is (retried == 302)
        assert act(client, "stator_move", parcel).status_code == (200 if moved == 302 else moved)
        assert move(client, parcel).status_code == moved
        assert move(client, parcel, select_across="1").status_code == moved
        assert Parcel.stator.in_state("delivered").exists() is (moved == 302)

    def test_of_nobody(self, client: Client) -> None:
        parcel = Parcel.objects.create()
        for response in (
            client.get(LIST),
            client.get(page_of(parcel)),
            act(client, "stator_retry", parcel),
            move(client, parcel),
        ):
            assert response.status_code == 302
            assert response["Location"].startswith("/admin/login/")
        assert not Parcel.stator.in_state("delivered").exists()

    def test_of_everybody_without_a_csrf_token(self, login: Login) -> None:
        parcel = Parcel.objects.create()
        client = login("change_parcel", "force_parcel", csrf=True)
        assert act(client, "stator_retry", parcel).status_code == 403
        assert move(client, parcel).status_code == 403
        assert not Parcel.stator.in_state("delivered").exists()

    def test_of_superusers(self, admin_client: Client) -> None:
        assert move(admin_client, Parcel.objects.create()).status_code == 302
        assert Parcel.stator.in_state("delivered").exists()

    def test_no_act_is_offered_to_readers(self, login: Login) -> None:
        Parcel.objects.create()
        assert "stator_" not in re.sub(
            "field-stator_|column-stator_", "", login("view_parcel").get(LIST).content.decode()
        )

    def test_of_single_objects_where_the_project_decides(self, login: Login, replace: Replace) -> None:
        class Own(StatorAdmin):
            def has_change_permission(self, request: Any, obj: Any = None) -> bool:
                return super().has_change_permission(request, obj) and (obj is None or obj.address == "mine")

        replace(Own)
        mine, other = Parcel.objects.create(address="mine"), Parcel.objects.create(address="other")
        client = login("view_parcel", "change_parcel", "force_parcel")
        assert re.findall(r'name="action" value="(\w+)"', client.get(page_of(other)).content.decode()) == []
        assert move(client, other).status_code == 403
        assert act(client, "stator_retry", other).status_code == 403
        assert act(client, "stator_unlock", other).status_code == 403
        assert move(client, mine, other).status_code == 302
        other.refresh_from_db()
        mine.refresh_from_db()
        assert (mine.state, other.state) == ("delivered", "packed")

    def test_of_an_admin_that_lets_nobody_edit(self, login: Login, replace: Replace) -> None:
        class ReadOnly(StatorAdmin):
            def has_change_permission(self, request: Any, obj: Any = None) -> bool:
                return False

        class Operated(ReadOnly):
            def has_move_permission(self, request: Any, obj: Any = None) -> bool:
                return bool(request.user.has_perm("testapp.force_parcel"))

        parcel = Parcel.objects.create()
        client = login("view_parcel", "change_parcel", "force_parcel")
        replace(ReadOnly)
        assert move(client, parcel).status_code == 403
        replace(Operated)
        assert act(client, "stator_retry", parcel).status_code == 403
        assert move(client, parcel).status_code == 302


def test_no_form_writes_the_columns_of_the_framework(admin_client: Client) -> None:
    parcel = Parcel.objects.create(address="old")
    before = Parcel.objects.values().get(pk=parcel.pk)
    forged = {
        "state": "delivered", "state_claim": "00000000-0000-0000-0000-000000000001", "state_version": "9",
        "state_locked_until": "2030-01-01", "state_locked_until_0": "2030-01-01", "state_locked_until_1": "00:00",
        "state_attempts": "7", "state_failures": "7", "state_crashes": "7", "state_ready": "", "stator_state": "sent",
    }  # fmt: skip
    assert admin_client.post(page_of(parcel), {"address": "new", **forged}).status_code == 302
    assert Parcel.objects.values().get(pk=parcel.pk) == {**before, "address": "new"}
    added = admin_client.post(f"{LIST}add/", {"address": "added", **forged})
    assert added.status_code == 302
    row = Parcel.objects.values().get(address="added")
    assert {name: row[name] for name in ("state", "state_claim", "state_version", "state_attempts")} == {
        "state": "packed", "state_claim": None, "state_version": 0, "state_attempts": 0,
    }  # fmt: skip
