"""The Django app of the example."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """An app with expenses."""

    name = "examples.approvals"
    label = "approvals"
    default_auto_field = "django.db.models.BigAutoField"
