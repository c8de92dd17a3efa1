"""A schedule whose ticks are an hour apart."""

import pytest

from stator.testing import drain
from tasks.models import Queue, Schedule


@pytest.fixture
def schedule():
    queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
    made = Schedule.objects.create(name="report", entity="seven", queue=queue, action="act", period=3600.0, jitter=5)
    drain(Schedule)
    return made
