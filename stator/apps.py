"""The Django app."""

from importlib import import_module

from django.apps import AppConfig, apps

from stator.conf import read_settings


class StatorConfig(AppConfig):
    """Stator: reconciliation loops for Django models."""

    name = "stator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, the admin, and what listens."""
        for module in (
            "batteries", "management.permissions", "db.generated",
            "management.autodetector", "migration_operations",
        ):  # fmt: skip
            import_module(f"stator.{module}").connect()
        import_module("stator.checks").register()
        if _has_admin() and read_settings()[0].ADMIN:
            # The project's own registrations come first; importing its admin modules twice does no harm.
            import_module("django.contrib.admin").autodiscover()
            import_module("stator.admin").register_managed()


def _has_admin() -> bool:
    """Return whether the project has an admin with autodiscovery."""
    if not apps.is_installed("django.contrib.admin"):
        return False
    return isinstance(apps.get_app_config("admin"), import_module("django.contrib.admin.apps").AdminConfig)
