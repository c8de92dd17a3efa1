"""Permissions of a user for each model, and the addresses of its pages."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_permission_codename
from django.db.models import Model
from django.http import HttpRequest

from stator.admin import links
from stator.models import StatorModel
from stator.rows.meta import owner_of


class Pages:
    """The admin pages of a site's models for one user.

    ``elsewhere``: the objects are in schemas where the lists and forms of the site do not look, so nothing links there.
    """

    def __init__(self, site: admin.AdminSite, request: HttpRequest, *, elsewhere: bool = False) -> None:
        self._site = site
        self._request = request
        self.elsewhere = elsewhere

    def may_view(self, model: type[Model]) -> bool:
        """Return whether the user may see objects of the model."""
        if self._site.is_registered(model):
            return bool(self._site.get_model_admin(model).has_view_or_change_permission(self._request))
        return self._has("view", model)

    def may_retry(self, model: type[StatorModel]) -> bool:
        """Return whether the user may retry objects of the model."""
        if not self._site.is_registered(model):
            return self._has("change", model)
        model_admin = self._site.get_model_admin(model)
        return bool(getattr(model_admin, "has_retry_permission", model_admin.has_change_permission)(self._request))

    def sees_all(self, model: type[Model]) -> bool:
        """Return whether the user may see every object of a model, managed or not."""
        return self.may_view(model) and not self._narrows(model)

    def may_act(self, model: type[Model], action: str) -> bool:
        """Return whether the user may use an action of the list of a model."""
        return self._site.is_registered(model) and action in self._site.get_model_admin(model).get_actions(
            self._request
        )

    def visible(self, model: type[StatorModel], pks: Iterable[object], using: str) -> set[object]:
        """Return the keys of objects that the user may see, as the project's admin narrows its list."""
        return set(self._listed(model, list(pks), using)) if self.may_view(model) else set()

    def retryable(self, model: type[StatorModel], pks: list[object], using: str) -> list[object]:
        """Return the keys of objects that the user may retry; checks each if the project's admin overrides this."""
        if not self._site.is_registered(model):
            return pks
        model_admin: Any = self._site.get_model_admin(model)
        # An attribute of ``StatorAdmin``; a project may register the model with another class.
        if getattr(model_admin, "differs_by_object", False):
            asked = model_admin.get_queryset(self._request).using(using).filter(pk__in=pks)
            return [row.pk for row in asked if model_admin.has_retry_permission(self._request, row)]
        return self._listed(model, pks, using)

    def _listed(self, model: type[StatorModel], pks: list[object], using: str) -> list[object]:
        """Return the keys whose objects are in the list of the project's admin."""
        if not self._narrows(model):
            return pks
        rows = self._site.get_model_admin(model).get_queryset(self._request).using(using).order_by()
        return list(rows.filter(pk__in=pks).values_list("pk", flat=True))

    def _narrows(self, model: type[Model]) -> bool:
        """Return whether the project's admin may leave objects out of its list."""
        if not self._site.is_registered(model):
            return False
        return type(self._site.get_model_admin(model)).get_queryset is not admin.ModelAdmin.get_queryset

    def list_of(self, model: type[Model], **lookups: str) -> str:
        """Return the address of the list of objects of a model, managed or not; "" if there is none for the user."""
        return links.list_of(self._site, _shown(model), **lookups) if self._links_to(model) else ""

    def page_of(self, model: type[Model], pk: object) -> str:
        """Return the address of one object's page; "" if there is none for the user."""
        return links.page_of(self._site, _shown(model), pk) if self._links_to(model) else ""

    def _links_to(self, model: type[Model]) -> bool:
        return not self.elsewhere and self.may_view(model)

    def _has(self, action: str, model: type[Model]) -> bool:
        codename = get_permission_codename(action, model._meta)
        return bool(self._request.user.has_perm(f"{model._meta.app_label}.{codename}"))


def _shown(model: type[Model]) -> type[Model]:
    """Return the model under whose name the pages are: the one whose table has the state."""
    return owner_of(model) if issubclass(model, StatorModel) else model
