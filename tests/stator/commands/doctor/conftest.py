"""A worker that is alive, for every managed model."""

import pytest

from stator.models import StatorModel, Worker
from stator.rows.meta import managed


@pytest.fixture
def crew_of_all():
    labels = [model._meta.label_lower for model in managed(StatorModel.subclasses)]
    return Worker.objects.create(id="a" * 12, host="oak", pid=7, version="1", models=labels, database="default")
