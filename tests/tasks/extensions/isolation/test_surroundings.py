"""Settings and databases that an isolated process takes over from its worker."""

import os
from typing import Any

import pytest
from django.conf import UserSettingsHolder, global_settings, settings
from django.db import connections
from django.test import override_settings
from django.utils import timezone, translation

from stator.testing import drain
from tasks.extensions.isolation.calls import answer_of, process_for_action
from tasks.failures import IsolationError
from tasks.models import Task
from tests.tasks.extensions.isolation.making import ran
from tests.testapp.isolated import process_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("databases_of_the_test")]


BACKEND = {"BACKEND": "tasks.backend.StatorBackend", "QUEUES": [], "OPTIONS": {"isolated": True}}


class TestSurroundings:
    """The process sees the databases and the settings of the one that started it, as tests have them."""

    def test_a_backend_of_overridden_settings_runs_its_tasks(self) -> None:
        with override_settings(TASKS={"default": {**BACKEND, "OPTIONS": {}}, "of-this-test": BACKEND}):
            result = process_id.using(backend="of-this-test").enqueue()
            drain(Task)
            result.refresh()
            assert result.errors == []
            assert result.return_value != os.getpid()

    @pytest.mark.parametrize(
        ("zone", "name"),
        [("Asia/Kolkata", "Asia/Kolkata"), (timezone.get_fixed_timezone(-150), "-0230")],
    )
    def test_language_and_time_zone_are_those_of_the_context_that_asks(self, zone: Any, name: str) -> None:
        with timezone.override(zone), translation.override("de"):
            offset = timezone.localtime().isoformat()[-6:]
            assert ran(action="surroundings", data=None).result == ["de", offset, name]

    @pytest.mark.sqlite
    def test_a_database_in_memory_is_refused_with_the_way_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connections["other"].settings_dict, "NAME", "file:memorydb_other?mode=memory&cache=shared")
        told = "database 'other' is in memory, where no other process finds it; name a file"
        with pytest.raises(IsolationError, match=told):
            answer_of(process_for_action(100), {"using": "other"})

    def test_settings_without_a_module_are_refused_with_the_way_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settings, "_wrapped", UserSettingsHolder(global_settings))
        with pytest.raises(IsolationError, match="needs a settings module"):
            answer_of(process_for_action(100), {})
