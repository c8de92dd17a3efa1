"""The overview: who sees and may do what, and that nothing becomes markup."""

import re
from typing import Any

import pytest
from django.test import Client

from stator.admin import StatorAdmin
from stator.models import Pause
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.overviews import HOSTILE, PARCELS, URL, failing, held, retry, worker
from tests.stator.making import ago, put, row
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestHostileTexts:
    def test_are_no_markup_anywhere(self, operator: Client) -> None:
        worker(host=HOSTILE, version="<b>1</b>", models=["testapp.parcel", HOSTILE])
        failing("aa", HOSTILE, HOSTILE)
        held()
        Pause.objects.create(model_label="testapp.parcel", actor=HOSTILE, reason=HOSTILE)
        page = operator.get(PARCELS).text
        assert "<script>alert" not in page
        assert "<b>1</b>" not in page
        assert page.count("&lt;script&gt;alert(&#x27;x&#x27;)") >= 5


class TestPermissions:
    @pytest.mark.parametrize("method", ["get", "post"])
    def test_anonymous_is_sent_to_the_login(self, client: Client, method: str) -> None:
        response = getattr(client, method)(URL)
        assert (response.status_code, response.url) == (302, f"/admin/login/?next={URL}")

    @pytest.mark.parametrize("method", ["get", "post"])
    @pytest.mark.parametrize("codenames", [(), ("view_parcel", "change_parcel"), ("view_worker",)])
    def test_staff_without_the_permission_is_refused(self, login: Login, method: str, codenames: Any) -> None:
        failing()
        client = login(*codenames)
        assert getattr(client, method)(PARCELS, {"model": "testapp.Parcel"}).status_code == 403
        assert URL not in client.get("/admin/").text
        assert row(Parcel.objects.get()).state_failures == 1

    def test_who_may_not_view_the_model_sees_figures_and_no_objects(self, login: Login) -> None:
        worker()
        parcel, _ = failing(message="quotes the address"), held()
        put(Parcel, state_changed=ago(8000))
        page = login("view_overview").get(PARCELS).text
        assert "quotes the address" not in page
        assert "/admin/testapp/parcel/" not in page
        assert f"testapp.Parcel {parcel.pk}" not in page
        assert "ValueError" in page

    @pytest.mark.parametrize("codenames", [("view_overview",), ("view_overview", "view_parcel", "force_parcel")])
    def test_retry_needs_what_retrying_needs(self, login: Login, codenames: Any) -> None:
        parcel = failing()
        client = login(*codenames)
        assert 'name="fingerprint"' not in client.get(PARCELS).text
        assert retry(client).status_code == 403
        assert row(parcel).state_failures == 1

    def test_retry_needs_csrf(self, login: Login) -> None:
        parcel = failing()
        client = login("view_overview", "change_parcel", csrf=True)
        assert retry(client).status_code == 403
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get(PARCELS).text)[1]  # type: ignore[index]
        assert row(parcel).state_failures == 1
        assert retry(client, csrfmiddlewaretoken=token).status_code == 302
        assert row(parcel).state_failures == 0

    def test_project_leaves_objects_out_of_its_list(self, login: Login, replace: Replace) -> None:
        class Narrowed(StatorAdmin):
            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).exclude(address="secret")

        replace(Narrowed)
        worker()
        rows = {}
        for address in ("secret", "open"):
            rows[address] = [
                put(Parcel, address=address, state_changed=ago(8000)),
                held(address=address),
                failing(address=address, message=f"{address} message", fingerprint=address),
            ]
        client = login("view_overview", "view_parcel", "change_parcel")
        page = client.get(PARCELS).text
        for address, shown in (("secret", False), ("open", True)):
            for one in rows[address]:
                assert (f"/admin/testapp/parcel/{one.pk}/change/" in page) is shown
        assert "secret message" not in page
        assert retry(client, fingerprint="secret").status_code == 302
        assert retry(client, fingerprint="open").status_code == 302
        assert [row(rows[address][2]).state_failures for address in ("secret", "open")] == [1, 0]
