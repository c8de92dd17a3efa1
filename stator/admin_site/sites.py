"""An admin site whose index says how many problems the overview has."""

import threading
import time
from contextlib import suppress

from django.contrib.admin import AdminSite
from django.http import HttpRequest

from stator.extensions.overview.models import Overview
from stator.extensions.problems.in_schemas import MAX_LOOKED_BY_PAGE, in_schemas, surveyed
from stator.extensions.problems.survey import problems, surveys
from stator.models import StatorModel
from stator.rows.meta import managed
from stator.survey.looks import works_in_schemas
from stator.texts import counted
from stator.worker.startup import Unusable

# Seconds between two counts in a process, of one schema or of many: nearly every page of the admin lists the apps.
FRESH, FRESH_OF_MANY = 10.0, 60.0


class StatorAdminSite(AdminSite):
    """Django's site; users who may view the overview read "Overview (3 problems)" in the list of apps."""

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[object]:
        """Return the apps with their models: the overview first, with the number of problems in its name."""
        listed = super().get_app_list(request, app_label)
        for model in (model for app in listed for model in app["models"] if model["model"] is Overview):
            if count := _problems.count():
                model["name"] = f"{model['name']} ({counted(count, 'problem')})"
        for owner in list(self._registry.values()) if app_label in (None, Overview._meta.app_label) else ():
            # What the admin of a model shows beside its list.
            if entries := getattr(owner, "with_entries", None):
                listed = entries(self, request, listed)
        for app in listed:
            # The others stay in their order.
            app["models"].sort(key=lambda model: model["model"] is not Overview)
        return listed

    def note_problems(self, count: int) -> None:
        """Take the number that the overview has just found, so that nothing is counted again."""
        _problems.note(count)


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
