"""A queue in both databases, neither of which rests."""

import pytest

from tasks.sharding import replicas
from tests.tasks.making import make_queue
from tests.tasks.sharding.databases import BOTH


@pytest.fixture(autouse=True)
def all_awake():
    replicas._resting.clear()
    yield
    replicas._resting.clear()


@pytest.fixture
def queue():
    return make_queue(databases=BOTH)
