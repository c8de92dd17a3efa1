"""Fields of managed models in forms: related objects by key, and the state."""

import re

import pytest
from django.test import Client

from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db


class TestRelations:
    def test_related_objects_are_entered_by_key_and_never_listed(self, admin_client: Client) -> None:
        builds = Build.objects.bulk_create(Build() for _ in range(300))
        rollout = Rollout.objects.create(build=builds[7])
        text = admin_client.get(f"/admin/testapp/rollout/{rollout.pk}/change/").content.decode()
        assert re.search(
            rf'<input type="text" name="build" value="{builds[7].pk}"[^>]*vForeignKeyRawIdAdminField', text
        )
        assert "<option" not in text
        assert len(text) < 60_000


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
