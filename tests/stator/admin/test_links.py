"""Links from page to page: workers, events and awaited objects."""

import pytest
from django.test import Client

from stator.models import Worker
from stator.rows.workers import worker_of
from stator.testing import attempt
from tests.stator.admin.requests import claim, page_of
from tests.testapp.operators import Parcel
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db


class TestLinks:
    def test_worker_and_what_it_holds_lead_to_each_other(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        worker = Worker.objects.create(
            id=worker_of(claim(Parcel).token), host="web-1", pid=41, models=["testapp.parcel", "testapp.gone"]
        )
        address = f"/admin/stator/worker/{worker.pk}/change/"
        assert f'<a href="{address}">Worker {worker.pk}</a>' in admin_client.get(page_of(parcel)).content.decode()
        assert f'testapp.Parcel <a href="{page_of(parcel)}">{parcel.pk}</a> in packed' in (
            admin_client.get(address).content.decode()
        )

    def test_event_leads_to_its_object(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(orders="fail")
        attempt(parcel)
        Parcel.stator.retry(actor="ada")
        for name in ("report", "history"):
            assert f'<a href="{page_of(parcel)}">{parcel.pk}</a>' in (
                admin_client.get(f"/admin/stator/{name}/").content.decode()
            )

    def test_waiting_object_leads_to_the_awaited_one(self, admin_client: Client) -> None:
        build = Build.objects.create()
        rollout = Rollout.objects.create(build=build)
        text = admin_client.get(f"/admin/testapp/rollout/{rollout.pk}/change/").content.decode()
        assert f'<a href="/admin/testapp/build/{build.pk}/change/">testapp.Build {build.pk}</a>' in text
