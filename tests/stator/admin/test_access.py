"""Permissions of each role in the admin, and columns that no form writes."""

import re
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from stator.admin import StatorAdmin
from stator.admin.confirmed_snapshot import see
from stator.models import Pause, Report
from stator.testing import attempt
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.requests import LIST, MOVE, act, move, page_of
from tests.stator.making import raw
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db


ROLES: dict[str, tuple[str, ...] | None] = {
    "anonymous": None,
    "view": ("view_parcel",),
    "change": ("change_parcel",),
    "move": ("view_parcel", "force_parcel"),
    "own pages": (
        "view_overview",
        *("view_pause", "add_pause", "delete_pause"),  # stator.extensions.pauses
    ),
}
LETTERS = "/admin/testapp/letter/"
OVERVIEW, PAUSES = "/admin/stator/overview/", "/admin/stator/pause/"
FORGED = {
    "state": "delivered", "state_claim": "00000000-0000-0000-0000-000000000001", "state_version": "9",
    "state_locked_until": "2030-01-01", "state_locked_until_0": "2030-01-01", "state_locked_until_1": "00:00",
    "state_attempts": "7", "state_failures": "7", "state_crashes": "7", "state_ready": "", "stator_state": "sent",
}  # fmt: skip

# What is asked for, and what each role is answered, in their order: ``(method, address, data, answers)``, where
# ``{parcel}`` and ``{letter}`` are keys. A 302 of the anonymous leads to the login.
RETRY = {"action": "stator_retry", "index": "0", "_selected_action": "{parcel}"}
ALL = {"_selected_action": "0", "select_across": "1"}
OF_ERROR = {"model": "testapp.Parcel", "fingerprint": "{fingerprint}", "per_minute": "60"}
END = {"action": "stator_end", "index": "0", "_selected_action": "{pause}"}
OF_PAUSES: dict[str, tuple[str, str, dict[str, str], tuple[int, ...]]] = {
    "pauses": ("get", PAUSES, {}, (302, 403, 200, 403, 200)),
    "pauses: add": ("post", f"{PAUSES}add/", {"model_label": "testapp.parcel"}, (302, 403, 302, 403, 403)),
    "pauses: end": ("post", PAUSES, END, (302, 403, 302, 403, 403)),
}
REQUESTS: dict[str, tuple[str, str, dict[str, str], tuple[int, ...]]] = {
    "list": ("get", LIST, {}, (302, 200, 200, 200, 403)),
    "page": ("get", f"{LIST}{{parcel}}/change/", {}, (302, 200, 200, 200, 403)),
    "live part": ("get", f"{LIST}{{parcel}}/stator/", {}, (302, 200, 200, 200, 403)),
    "live part by POST": ("post", f"{LIST}{{parcel}}/stator/", {}, (302, 405, 405, 405, 405)),
    # The list, with filters that it does not know.
    "acts by GET": ("get", LIST, {**MOVE, "_selected_action": "{parcel}"}, (302, 302, 302, 302, 403)),
    "bulk retry": ("post", LIST, {**RETRY, **ALL}, (302, 403, 302, 403, 403)),
    "bulk move": ("post", LIST, {**MOVE, **ALL}, (302, 403, 403, 302, 403)),
    "other: list": ("get", LETTERS, {}, (302, 403, 403, 403, 403)),
    "other: live part": ("get", f"{LETTERS}{{letter}}/stator/", {}, (302, 403, 403, 403, 403)),
    "other: bulk move": ("post", LETTERS, {**MOVE, "state": "posted", **ALL}, (302, 403, 403, 403, 403)),
    "overview": ("get", OVERVIEW, {}, (302, 403, 403, 403, 200)),
    "overview: retry": ("post", f"{OVERVIEW}?model=testapp.Parcel", OF_ERROR, (302, 403, 403, 403, 403)),
    **OF_PAUSES,  # stator.extensions.pauses
}  # fmt: skip


class TestPermissions:
    """The answer to each request of each role, and whether a row was changed; of chosen rows see test_actions.py."""

    @pytest.mark.parametrize("role", ROLES)
    def test_each_role_gets_its_answer(self, login: Login, role: str) -> None:
        client = Client() if role == "anonymous" else login(*(ROLES[role] or ()))
        for what, (*_, answers) in REQUESTS.items():
            with transaction.atomic():
                self._ask(client, role, what, answers[list(ROLES).index(role)])
                transaction.set_rollback(True)

    def _ask(self, client: Client, role: str, what: str, answer: int) -> None:
        response = asked(client, what)
        assert response.status_code == answer, what
        if role == "anonymous" and answer == 302:
            assert response["Location"].startswith("/admin/login/")
        done = role != "anonymous" and answer == 302
        moved = done and what == "bulk move"
        failures = Parcel.objects.values_list("state_failures", flat=True).get()
        assert failures == (0 if moved or (done and what == "bulk retry") else 1), what
        assert Parcel.stator.in_state("delivered").exists() is moved, what
        assert not Letter.stator.in_state("posted").exists()
        added, ended = done and what == "pauses: add", done and what == "pauses: end"
        assert Pause.objects.count() == 1 + added  # stator.extensions.pauses
        assert Pause.objects.active().count() == 1 + added - ended  # stator.extensions.pauses

    def test_nobody_acts_without_the_token_of_a_form(self, admin_user: Any) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(admin_user)
        for what, (method, *_) in REQUESTS.items():
            if method == "post" and what != "live part by POST":
                with transaction.atomic():
                    assert asked(client, what).status_code == 403, what
                    transaction.set_rollback(True)

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


def asked(client: Client, what: str) -> Any:
    """Make a request about a failing parcel, a letter and a pause."""
    parcel, letter = Parcel.objects.create(orders="fail"), Letter.objects.create(number="17")
    attempt(parcel)
    method, url, data, _ = REQUESTS[what]
    keys = {"parcel": parcel.pk, "letter": letter.pk, "fingerprint": Report.objects.get().fingerprint}
    keys["pause"] = Pause.objects.create(model_label="testapp.parcel", state="sent").pk  # stator.extensions.pauses
    given = {name: value.format(**keys) for name, value in data.items()}
    if "stator_confirmed" in given:
        given["stator_seen"] = see(raw(Letter if "other" in what else Parcel), 100).as_text()
    return getattr(client, method)(url.format(**keys), given)


def test_no_form_writes_the_columns_of_the_framework(admin_client: Client) -> None:
    parcel = Parcel.objects.create(address="old")
    before = Parcel.objects.values().get(pk=parcel.pk)
    assert admin_client.post(page_of(parcel), {"address": "new", **FORGED}).status_code == 302
    assert Parcel.objects.values().get(pk=parcel.pk) == {**before, "address": "new"}
    added = admin_client.post(f"{LIST}add/", {"address": "added", **FORGED})
    assert added.status_code == 302
    row = Parcel.objects.values().get(address="added")
    assert {name: row[name] for name in ("state", "state_claim", "state_version", "state_attempts")} == {
        "state": "packed", "state_claim": None, "state_version": 0, "state_attempts": 0,
    }  # fmt: skip
