"""The Django app of the example."""

from django.apps import AppConfig


class CodeIndexConfig(AppConfig):
    """An app with source files, and the symbols that they define."""

    name = "examples.codeindex"
    label = "codeindex"
    verbose_name = "Code index"
    default_auto_field = "django.db.models.BigAutoField"
