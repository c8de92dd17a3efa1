"""A live worker that serves errands, and options of errands for one test."""

import pytest

from stator.models import Worker
from tests.stator.explain.errands import WORKER


@pytest.fixture
def crew():
    """A live worker that serves the model."""
    return Worker.objects.create(
        id=WORKER, host="oak", pid=4242, version="1", models=["testapp.errand"], database="default"
    )
