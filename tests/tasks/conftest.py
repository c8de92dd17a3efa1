"""Fixtures for the tests of the queue."""

from typing import Any

import pytest

from tests.stator.conftest import transactional_db
from tests.tasks.making import make_queue
from tests.testapp import actions as examples

__all__ = ["transactional_db"]


@pytest.fixture
def queue():
    """A queue that takes any action."""
    return make_queue()


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    """The calls that actions of tests have seen are forgotten before each test."""
    examples.seen.clear()
    examples.release.clear()
    yield
    examples.release.set()
