"""The Django app."""

from importlib import import_module

from django.apps import AppConfig


class StatorConfig(AppConfig):
    """Stator: reconciliation loops for Django models."""

    name = "stator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and what listens."""
        for module in (
            "batteries", "management.permissions", "db.generated",
            "management.autodetector", "migration_operations",
        ):  # fmt: skip
            import_module(f"stator.{module}").connect()
        import_module("stator.checks").register()
