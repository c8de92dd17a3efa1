"""A live worker that serves errands, and options of errands for one test."""

import pytest

from stator.models import Worker
from stator.rows.meta import options_of
from tests.stator.explain.errands import WORKER
from tests.testapp.explained import Errand


@pytest.fixture
def crew():
    """A live worker that serves the model."""
    return Worker.objects.create(
        id=WORKER, host="oak", pid=4242, version="1", models=["testapp.errand"], database="default"
    )


@pytest.fixture
def declare(monkeypatch):
    """Gives errands functions as options in ``StatorMeta``."""

    def give(**functions):
        options = {name: staticmethod(function) for name, function in functions.items()}
        monkeypatch.setattr(Errand, "StatorMeta", type("StatorMeta", (), options), raising=False)
        options_of.cache_clear()

    yield give
    options_of.cache_clear()
