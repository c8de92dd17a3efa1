"""The permission ``force_<model>``, which moving objects by hand in the admin requires."""

from django.apps import AppConfig
from django.apps import apps as global_apps
from django.apps.registry import Apps
from django.contrib.auth import get_permission_codename
from django.db import DEFAULT_DB_ALIAS, router
from django.db.models import Model, QuerySet
from django.db.models.signals import post_migrate

from stator.models import StatorModel

ACTION = "force"


def connect() -> None:
    """Create missing permissions at every ``migrate``, and delete the permissions of models that lost the mixin.

    ``Meta.permissions`` would appear in the migrations of every project, and a subclass's own ``Meta`` would replace
    it.
    """
    post_migrate.connect(create_permissions, dispatch_uid="stator.permissions")


def force_permission(model: type[Model]) -> str:
    """Return the name of the permission on a model for ``user.has_perm()``."""
    return f"{model._meta.app_label}.{get_permission_codename(ACTION, model._meta)}"


def create_permissions(
    app_config: AppConfig, using: str = DEFAULT_DB_ALIAS, apps: Apps = global_apps, **kwargs: object
) -> None:
    """Create the permissions on the managed models of one app, and delete those on models that are not managed now."""
    models = [model for model in app_config.get_models() if issubclass(model, StatorModel)]
    try:
        permission, content_type = map(apps.get_model, ("auth.Permission", "contenttypes.ContentType"))
    except LookupError:
        # Those apps are not migrated yet; a later migrate calls this again.
        return
    if not router.allow_migrate_model(using, permission):
        return
    _delete_former(app_config, permission.objects.using(using))
    if not models:
        return
    types = content_type.objects.db_manager(using).get_for_models(*models, for_concrete_models=False)
    wanted = {(types[model].pk, get_permission_codename(ACTION, model._meta)): model for model in models}
    rows = permission.objects.using(using)
    existing = set(rows.filter(content_type__in=types.values()).values_list("content_type_id", "codename"))
    rows.bulk_create(
        permission(content_type_id=pk, codename=codename, name=f"Can force {model._meta.verbose_name_raw}"[:255])
        for (pk, codename), model in wanted.items()
        if (pk, codename) not in existing
    )


def _delete_former(app_config: AppConfig, permissions: QuerySet[Model]) -> None:
    """Delete the permissions on models that are still there without the mixin, and do not declare them themselves."""
    ours = permissions.filter(content_type__app_label=app_config.label, codename__startswith=f"{ACTION}_")
    existing = {(model, name): pk for model, name, pk in ours.values_list("content_type__model", "codename", "pk")}
    former = [
        (model._meta.model_name, get_permission_codename(ACTION, model._meta))
        for model in app_config.get_models()
        if existing and not issubclass(model, StatorModel) and not _declares(model)
    ]
    if gone := [existing[key] for key in former if key in existing]:
        permissions.filter(pk__in=gone).delete()


def _declares(model: type[Model]) -> bool:
    return get_permission_codename(ACTION, model._meta) in {name for name, _ in model._meta.permissions}
