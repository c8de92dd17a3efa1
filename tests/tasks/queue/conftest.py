"""A queue that takes any action."""

import pytest

from tests.tasks.making import make_queue


@pytest.fixture
def queue():
    return make_queue()
