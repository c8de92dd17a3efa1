"""Models in the admin: those registered without code, and the read-only models beside them."""

import pytest
from django.contrib import admin
from django.test import Client

from stator.admin import StatorAdmin, register_managed
from stator.models import Depth, History, Report, StatorModel, Stats
from stator.testing import attempt
from tests.testapp.models import Line
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


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
        for model in (Stats, Depth, Report, History):
            url = f"/admin/stator/{model._meta.model_name}/"
            pk = model.objects.first().pk
            assert admin_client.get(url).status_code == 200
            assert admin_client.get(f"{url}{pk}/change/").status_code == 200
            assert admin_client.post(f"{url}{pk}/change/", {}).status_code == 403
            assert admin_client.get(f"{url}add/").status_code == 403
            assert admin_client.post(f"{url}{pk}/delete/", {"post": "yes"}).status_code == 403
