"""The Django app."""

from django.apps import AppConfig


class StatorConfig(AppConfig):
    """Stator: reconciliation loops for Django models."""

    name = "stator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks and the wake-up of workers."""
        from stator import checks, wakeup

        checks.register()
        wakeup.connect()
