"""A worker that is alive, for every managed model."""

import pytest

from stator.extensions.problems.commands.doctor import postgresql
from stator.models import StatorModel, Worker
from stator.rows.meta import managed
from tests.stator.making import ago


@pytest.fixture
def crew_of_all():
    labels = [model._meta.label_lower for model in managed(StatorModel.subclasses)]
    return Worker.objects.create(
        id="a" * 12, host="oak", pid=7, version="1", models=labels, database="default", started=ago(7200)
    )


@pytest.fixture
def calm(monkeypatch):
    """Leave out of account what other tests do to the server: they have connections, and leave dead rows."""
    monkeypatch.setattr(postgresql, "MAX_USED", 2.0)
    monkeypatch.setattr(postgresql, "DEAD_ROWS", 1 << 40)
