"""The permission ``force_<model>``: when it is created, and for which models."""

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db.migrations.state import StateApps

from stator.management import permissions
from stator.models import StatorModel

pytestmark = pytest.mark.django_db


class TestForcePermission:
    def test_exists_for_every_managed_model_after_migrate(self) -> None:
        names = {f"force_{model._meta.model_name}" for model in StatorModel.subclasses}
        assert names <= set(Permission.objects.values_list("codename", flat=True))
        assert Permission.objects.get(codename="force_parcel").name == "Can force parcel"

    def test_is_created_once_and_only_for_managed_models(self) -> None:
        config = apps.get_app_config("testapp")
        Permission.objects.filter(codename="force_parcel").delete()
        for _ in range(2):
            permissions.create_permissions(config)
        assert Permission.objects.filter(codename="force_parcel").count() == 1
        assert not Permission.objects.filter(codename="force_event").exists()

    def test_nothing_happens_before_the_tables_of_django_are_there(self) -> None:
        permissions.create_permissions(apps.get_app_config("testapp"), apps=StateApps([], {}))
