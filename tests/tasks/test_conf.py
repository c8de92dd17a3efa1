"""The settings of the queue are checked as a whole, before anything runs."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from tasks.conf import TaskSettings, check_settings, load_settings

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "queues.rst").read_text()


@pytest.mark.needs("notices", "schedules")
def test_guide_has_every_setting_with_its_default():
    told = dict(re.findall(r"^``([A-Z_]+)`` +(\S+(?: days)?)", GUIDE, re.MULTILINE))
    defaults = {option.name: option.default for option in fields(TaskSettings)}
    assert set(told) == set(defaults)
    assert {name: told[name] for name in ("RETENTION", "NOTIFY")} == {"RETENTION": "7 days", "NOTIFY": "see"}
    others = set(told) - {"RETENTION", "NOTIFY"}
    assert {name: told[name] for name in others} == {name: str(defaults[name]).removesuffix(".0") for name in others}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"LEESE": 5}, "'LEESE' is not a setting; did you mean 'LEASE'?"),
        ({"WHATEVER": 5}, "'WHATEVER' is not a setting; known settings are API"),
        ({"LEASE": "60"}, "LEASE='60' must be a number"),
        ({"LEASE": 0}, "LEASE=0 must be at least 0.5"),
        ({"MAX_ATTEMPTS": 2.5}, "MAX_ATTEMPTS=2.5 must be a whole number"),
        ({"NOTIFY": 5}, "NOTIFY must be a string"),  # tasks.extensions.notices
        ([], None),
        ([1], "STATOR_TASKS must be a dictionary, not list"),
    ],
)
def test_setting_that_cannot_work_is_refused_in_one_line(settings, given, told):
    settings.STATOR_TASKS = given
    if told is None:
        assert load_settings().LEASE == 60
        return
    with pytest.raises(ImproperlyConfigured) as refused:
        load_settings()
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [message.id for message in check_settings()] == ["tasks.E001"]
