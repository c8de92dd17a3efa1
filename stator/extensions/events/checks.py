"""The check of the permissions that events need."""

from collections.abc import Iterator
from difflib import get_close_matches

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.db.models import Model

from stator.graph import StateGraph
from stator.management.permissions import force_permission
from stator.models import StatorModel


def unsendable(graph: type[StateGraph]) -> Iterator[tuple[int, str, str]]:
    """W208: an event with a permission that no model declares, so that only superusers may send it."""
    asked = [(state, event) for state in graph.states.values() for event in state.events.values() if event.permission]
    if not asked or not apps.is_installed("django.contrib.auth"):
        return
    known = {name for model in apps.get_models() for name in _permissions_on(model)}
    for state, event in asked:
        if event.permission not in known:
            close = get_close_matches(event.permission, known, 1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            wrong = f"needs the permission {event.permission!r}, which no model has"
            yield 208, f".{state.name}.on({event.name!r}) {wrong}.", f"Declare it in permissions of a Meta.{meant}"


def _permissions_on(model: type[Model]) -> Iterator[str]:
    meta = model._meta
    for codename, _ in meta.permissions:
        yield f"{meta.app_label}.{codename}"
    for action in meta.default_permissions:
        yield f"{meta.app_label}.{get_permission_codename(action, meta)}"
    if issubclass(model, StatorModel):
        yield force_permission(model)
