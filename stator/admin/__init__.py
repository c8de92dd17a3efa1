"""Managed models in the Django admin: why a row does not move, and the actions of operators."""

from importlib import import_module

from django.contrib import admin

from stator.admin import read_only  # noqa: F401 - they register what they have
from stator.admin.managed import StatorAdmin
from stator.batteries import extensions
from stator.extensions.admin.sections import Cell, Section, add_section
from stator.models import StatorModel

__all__ = ["Cell", "Section", "StatorAdmin", "add_section", "register_managed"]

for _path in (path for extension in extensions() for path in extension.admin):
    import_module(_path)


def register_managed(site: admin.AdminSite = admin.site) -> None:
    """Register the managed models that the project has not registered; call it after the project's registrations."""
    for model in StatorModel.subclasses:
        # Django's admin accepts no composite key.
        if not (model._meta.is_composite_pk or site.is_registered(model)):
            site.register(model, StatorAdmin)
