"""What the app needs beside it."""

import pytest
from django.apps.registry import Apps
from django.core.exceptions import ImproperlyConfigured


@pytest.mark.once
def test_app_without_the_one_that_it_is_built_on_says_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.apps.apps.is_installed", lambda name: name != "stator")
    with pytest.raises(ImproperlyConfigured, match=r"needs 'stator': INSTALLED_APPS = \[..., 'stator', 'tasks'\]"):
        Apps(["tasks"])
