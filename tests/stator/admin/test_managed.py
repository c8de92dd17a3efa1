"""Managed models in the admin: which are there, related objects by key, and the state in forms."""

import re

import pytest
from django.contrib import admin
from django.test import Client

from stator.admin import StatorAdmin, register_managed
from stator.models import Depth, History, Report, StatorModel, Stats, Worker
from stator.rows import columns
from stator.testing import attempt
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import LIST, act, set_columns
from tests.stator.making import raw, row
from tests.testapp.mails import Postcard
from tests.testapp.models import Line
from tests.testapp.operators import Parcel
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db


class TestRelations:
    @pytest.mark.needs("undo")
    def test_related_objects_are_entered_by_key_and_never_listed(self, admin_client: Client) -> None:
        builds = Build.objects.bulk_create(Build() for _ in range(9))
        rollout = Rollout.objects.create(build=builds[7])
        text = admin_client.get(f"/admin/testapp/rollout/{rollout.pk}/change/").content.decode()
        assert re.search(
            rf'<input type="text" name="build" value="{builds[7].pk}"[^>]*vForeignKeyRawIdAdminField', text
        )
        assert "<option" not in text
        assert f'value="{builds[8].pk}"' not in text


def test_objects_without_a_state_are_found_in_the_list_and_need_nothing(admin_client: Client) -> None:
    cards = [Postcard.objects.create(status="sent"), Postcard.objects.create()]
    raw(Postcard).filter(pk=cards[1].pk).update(status=None)
    address = "/admin/testapp/postcard/"
    offered = admin_client.get(address).content.decode()
    assert "?status__isnull=True" in offered
    page = admin_client.get(f"{address}?status__isnull=True")
    assert list(page.context["cl"].queryset) == [cards[1]]
    assert "has no state" in page.content.decode()
    assert [reason.code for reason in cards[1].explain()] == ["unmanaged"]


def test_state_that_other_forms_may_edit_is_moved_only_by_the_action(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Build._meta.get_field("state"), "editable", True)
    build = Build.objects.create()
    address = f"/admin/testapp/build/{build.pk}/change/"
    assert 'id="id_state"' not in admin_client.get(address).content.decode()
    admin_client.post(address, {"state": "built", "slow": "on"})
    build.refresh_from_db()
    assert (build.state, build.slow) == ("compiling", True)


class TestErrors:
    """Failing objects in lists."""

    @pytest.fixture
    def parcels(self, db: None) -> list[Parcel]:
        parcels = [
            Parcel.objects.create(orders=orders, address="<b>nowhere") for orders in ("fail", "fail", "fail: key")
        ]
        for parcel in parcels:
            attempt(parcel)
            set_columns(parcel, state_ready=False, state_next_attempt=columns.after(3600))
        return parcels

    @pytest.mark.needs("reports")
    def test_why_has_the_error_that_leads_to_all_objects_with_it(
        self, admin_client: Client, parcels: list[Parcel]
    ) -> None:
        page = admin_client.get(f"{LIST}?condition=failing").text
        found = re.findall(r'backing off: 1 error <a class="stator-same" href="([^"]*)">([^<]*)<', page)
        assert len(found) == 3
        links = {text: link for link, text in found}
        link = next(link for text, link in links.items() if "ValueError: &lt;b&gt;nowhere" in text)
        same = admin_client.get(f"{LIST}{link}").text
        assert same.count('class="stator-same"') == 2
        assert "All 2 found:" in same

    def test_action_on_all_with_an_error_leaves_other_errors_alone(
        self, admin_client: Client, parcels: list[Parcel]
    ) -> None:
        fingerprint = Report.objects.get(object_pk=str(parcels[0].pk)).fingerprint
        act(admin_client, "stator_retry", parcels[2], url=f"{LIST}?error={fingerprint}", select_across="1")
        assert [row(parcel).state_failures for parcel in parcels] == [0, 0, 1]


class TestOffered:
    """The buttons above a filtered list, for everything found."""

    def test_objects_of_a_state_may_be_moved_where_its_edges_lead(self, admin_client: Client, login: Login) -> None:
        Parcel.objects.create(state="stamped")
        text = admin_client.get(f"{LIST}?state=stamped").text
        assert "The one found:" in text
        assert re.findall(r'class="button">Move to (\w+)', text) == ["sent"]
        assert "found:" not in admin_client.get(LIST).text
        assert "found:" not in login("view_parcel").get(f"{LIST}?state=stamped").text


# Models in the admin: those registered without code, and the read-only models beside them


class TestRegistration:
    def test_every_managed_model_is_there(self) -> None:
        # Django's admin refuses composite keys.
        managed = [model for model in StatorModel.subclasses if not model._meta.is_composite_pk]
        assert all(admin.site.is_registered(model) for model in managed)
        assert isinstance(admin.site.get_model_admin(Parcel), StatorAdmin)

    def test_what_the_project_registered_stays(self) -> None:
        site = admin.AdminSite()
        site.register(Parcel, admin.ModelAdmin)
        register_managed(site)
        assert type(site.get_model_admin(Parcel)) is admin.ModelAdmin
        assert isinstance(site.get_model_admin(Line), StatorAdmin)

    def test_reports_history_and_statistics_are_shown_and_never_written(self, admin_client: Client) -> None:
        line = Line.objects.create()
        Stats.add("default", "testapp.line", "first", "last", shard=1, handled=3, failed=1)
        Depth.sample("default", {"testapp.line": {"queued": 3, "oldest": 1.5}})
        attempt(Parcel.objects.create(orders="never"))
        line.transition_perform("last", actor="me")
        Worker.objects.create(id="0" * 12, host="oak", pid=1, version="1", models=[], database="default")
        for model in (Stats, Depth, Report, History, Worker):
            url = f"/admin/stator/{model._meta.model_name}/"
            pk = model.objects.first().pk
            assert admin_client.get(url).status_code == 200
            assert admin_client.get(f"{url}{pk}/change/").status_code == 200
            assert admin_client.post(f"{url}{pk}/change/", {}).status_code == 403
            assert admin_client.get(f"{url}add/").status_code == 403
            assert admin_client.post(f"{url}{pk}/delete/", {"post": "yes"}).status_code == 403
