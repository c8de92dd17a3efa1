"""The registration of managed models with the admin site of a project."""

from importlib import import_module

from django.apps import apps

from stator.conf import read_settings


def register() -> None:
    """Register the models that the project has not registered, if it has an admin with autodiscovery."""
    if not (apps.is_installed("django.contrib.admin") and read_settings()[0].ADMIN):
        return
    if isinstance(apps.get_app_config("admin"), import_module("django.contrib.admin.apps").AdminConfig):
        # The project's own registrations come first; importing its admin modules twice does no harm.
        import_module("django.contrib.admin").autodiscover()
        import_module("stator.admin").register_managed()
