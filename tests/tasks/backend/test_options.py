"""The options of a backend: bad ones are refused in one line."""

import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tasks.backend.framework import task_backends
from tasks.backend.tasks_backend import BackendOptions
from tasks.models import Task
from tests.processes import environment_for_subprocess
from tests.tasks.backend.making import backend
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"max_attempt": 3}, "'max_attempt' is not an option; did you mean 'max_attempts'?"),
            ({"timeout": "1"}, "timeout='1' must be a number of seconds above 0"),
            ({"modules": "os"}, "modules='os' must be a list of module names"),
            ({"rate": "fast"}, "rate='fast' must be a number of starts and a time"),  # tasks.extensions.throttles
            ({"retention": -1}, "retention=-1 must be a number of seconds from 0 to 3153600000"),
            ({"retention": timedelta(days=7)}, "must be a number of seconds; write 604800"),
            ({"backoff": "x"}, "backoff='x' must be a number of seconds, a function of the number of errors, or"),
            ({"isolated": "yes"}, "isolated='yes' must be True or False"),  # tasks.extensions.isolation
            ({"max_attempts": 10**12}, "max_attempts=1000000000000 must be at most 1000000"),
            ({"local_delay": 1e300}, "local_delay=1e+300 must be at most 3153600000 seconds"),
            (None, "OPTIONS=None must be a dictionary"),
        ],
    )
    def test_bad_ones_are_refused_by_the_check_and_by_enqueueing(self, options: dict[str, Any], told: str) -> None:
        with backend(OPTIONS=options):
            [error] = task_backends["default"].check()
            assert (error.id, told in error.msg) == ("tasks.E202", True), error.msg
            with pytest.raises(ImproperlyConfigured) as caught:
                examples.add.enqueue(1)
            assert told in str(caught.value)
            assert "\n" not in str(caught.value)
        assert not Task.objects.exists()

    def test_an_impossible_name_in_queues_is_found_by_the_check(self) -> None:
        with backend(QUEUES=["default", "a/b"]):
            [error] = task_backends["default"].check()
            assert error.id == "tasks.E202"
            assert "QUEUES: queue 'a/b' would have no address" in error.msg


def test_every_option_is_in_the_guide() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "django-tasks.rst").read_text()
    assert [option.name for option in fields(BackendOptions) if f"``{option.name}``" not in text] == []


WITHOUT_THE_APP = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "stator"],
    TASKS={"default": {"BACKEND": "tasks.backend.StatorBackend"}},
)
django.setup()
from tasks.backend.framework import task_backends
print(*[f"{error.id} {error.msg}" for error in task_backends["default"].check()])
"""


def test_check_of_a_site_without_the_app_says_so() -> None:
    command = [sys.executable, "-c", WITHOUT_THE_APP]
    done = subprocess.run(command, env=environment_for_subprocess(), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "tasks.E201 TASKS['default'] needs the app 'tasks'.", done.stderr[-500:]
