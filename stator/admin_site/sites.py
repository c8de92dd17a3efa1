"""An admin site whose index says how many problems the overview has."""

import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import reverse

from stator.models import Event, Overview, StatorModel
from stator.overview.schemas import MAX_LOOKED_BY_PAGE, in_schemas, surveyed, works_in_schemas
from stator.overview.survey import problems, surveys
from stator.rows.meta import managed
from stator.texts import counted
from stator.worker.startup import Unusable

# Seconds between two counts in a process, of one schema or of many: nearly every page of the admin lists the apps.
FRESH, FRESH_OF_MANY = 10.0, 60.0


class StatorAdminSite(AdminSite):
    """Django's site; users who may view the overview read "Overview (3 problems)" in the list of apps."""

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the apps with their models: the overview first, with the number of problems in its name."""
        found: list[Any] = super().get_app_list(request, app_label)
        for app in found:
            # The others stay in the order of their names.
            app["models"].sort(key=lambda model: model["model"] is not Overview)
        for model in (model for app in found for model in app["models"] if model["model"] is Overview):
            if count := _problems.count():
                model["name"] = f"{model['name']} ({counted(count, 'problem')})"
        return self._with_inbox(request, found) if app_label in (None, Event._meta.app_label) else found

    def note_problems(self, count: int) -> None:
        """Take the number that the overview has just found, so that nothing is counted again."""
        _problems.note(count)

    def _with_inbox(self, request: HttpRequest, found: list[Any]) -> list[Any]:
        """Return the apps with the link to what waits for the user, after the overview, if the user may send events."""
        if not self.is_registered(Event):
            return found
        # The pages of the admin register themselves with this site once it is there.
        counts = import_module("stator.admin.inbox").counts
        if (count := counts.of(self, request)) is None:
            return found
        label, config = Event._meta.app_label, Event._meta.app_config
        link = {
            "model": Event, "name": f"Waiting for you{f' ({count})' * bool(count)}", "object_name": "Waiting",
            "perms": {}, "admin_url": reverse("admin:stator_event_waiting", current_app=self.name), "add_url": None,
            "view_only": True,
        }  # fmt: skip
        mine = next((app for app in found if app["app_label"] == label), None)
        if mine is None:
            url = reverse("admin:app_list", kwargs={"app_label": label}, current_app=self.name)
            mine = {
                "name": getattr(config, "verbose_name", label), "app_label": label, "app_url": url,
                "has_module_perms": True, "models": [],
            }  # fmt: skip
            found = [*found, mine]
        mine["models"].insert(sum(model["model"] is Overview for model in mine["models"]), link)
        return found


class _Problems:
    """The number of problems, counted by one thread at a time and at most once in ``FRESH`` seconds."""

    def __init__(self) -> None:
        self._counted = 0
        self._until = 0.0
        self._busy = threading.Lock()

    def count(self) -> int:
        """Return the number as it was at most ``FRESH`` seconds ago; an older one while another thread counts."""
        if time.monotonic() >= self._until and self._busy.acquire(blocking=False):
            try:
                in_many = works_in_schemas()
                self._counted = _in_schemas() if in_many else _in_databases()
                self._until = time.monotonic() + (FRESH_OF_MANY if in_many else FRESH)
            finally:
                self._busy.release()
        return self._counted

    def note(self, count: int) -> None:
        """Take a number that was counted now."""
        self._counted, self._until = count, time.monotonic() + FRESH


def _in_databases() -> int:
    return len(problems(surveys(managed(StatorModel.subclasses))))


def _in_schemas() -> int:
    """Return the number of problems in all schemas, as far as the overview looks for them."""
    with suppress(Unusable):
        known = in_schemas(managed(StatorModel.subclasses))
        return len(surveyed(known, MAX_LOOKED_BY_PAGE).problems())
    return 0


_problems = _Problems()
