"""A queue for ticks, and functions of one test alone."""

import pytest

from tasks.extensions.schedules import periodic as periodic_module
from tasks.models import Queue


@pytest.fixture
def queue(db):
    return Queue.objects.create(name="ticks", actions_elsewhere=True)


@pytest.fixture
def registry(monkeypatch):
    """Functions of one test alone."""
    monkeypatch.setattr(periodic_module, "registry", found := {})
    for user in ("tasks.extensions.schedules.periodic_sync", "tasks.extensions.schedules.ticking"):
        monkeypatch.setattr(f"{user}.registry", found)
    return found


@pytest.fixture
def calls():
    return []
