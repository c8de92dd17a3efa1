"""The Django app."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, register

# The functions of ``stator.checks.every`` with their tags. They are imported when Django checks something.
CHECKS = {
    "settings_checks": (),
    "model_checks": (Tags.models,),
    "database_checks": (Tags.database,),
    "deployment_checks": (),
}


class StatorConfig(AppConfig):
    """Stator: reconciliation loops for Django models."""

    name = "stator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and what listens."""
        for module in ("batteries", "management.permissions", "db.generated"):
            import_module(f"stator.{module}").connect()
        for name, tags in CHECKS.items():
            register(partial(_checked, name), "stator", *tags, deploy=name == "deployment_checks")


def _checked(name: str, **given: object) -> Sequence[CheckMessage]:
    checks: Sequence[CheckMessage] = getattr(import_module("stator.checks.every"), name)(**given)
    return checks
