"""The permission ``force_<model>``, without which nobody moves an object by hand in the admin."""

from typing import Any

from django.apps import apps as global_apps
from django.contrib.auth import get_permission_codename
from django.db import DEFAULT_DB_ALIAS, router
from django.db.models.signals import post_migrate

from stator.models import StatorModel

ACTION = "force"


def connect() -> None:
    """Have every ``migrate`` create the permissions that are missing.

    Not by ``Meta.permissions``: that would show in the migrations of every project, and a ``Meta`` of a subclass
    would replace it.
    """
    post_migrate.connect(create_permissions, dispatch_uid="stator.permissions")


def force_permission(model: Any) -> str:
    """The name of the permission on a model, as ``user.has_perm()`` takes it."""
    return f"{model._meta.app_label}.{get_permission_codename(ACTION, model._meta)}"


def create_permissions(app_config: Any, using: str = DEFAULT_DB_ALIAS, apps: Any = global_apps, **kwargs: Any) -> None:
    """Create the permissions on the managed models of one app."""
    models = [model for model in app_config.get_models() if issubclass(model, StatorModel)]
    try:
        permission, content_type = apps.get_model("auth", "Permission"), apps.get_model("contenttypes", "ContentType")
    except LookupError:
        # Migrations of those apps have not been run yet; a later migrate comes here again.
        return
    if not models or not router.allow_migrate_model(using, permission):
        return
    types = content_type.objects.db_manager(using).get_for_models(*models, for_concrete_models=False)
    wanted = {(types[model].pk, get_permission_codename(ACTION, model._meta)): model for model in models}
    rows = permission.objects.using(using)
    found = set(rows.filter(content_type__in=types.values()).values_list("content_type_id", "codename"))
    rows.bulk_create(
        permission(content_type_id=pk, codename=codename, name=f"Can force {model._meta.verbose_name_raw}"[:255])
        for (pk, codename), model in wanted.items()
        if (pk, codename) not in found
    )
