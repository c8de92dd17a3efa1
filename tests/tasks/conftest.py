"""Fixtures for the tests of the queue."""

from typing import Any

import pytest

from tests.statements import sent
from tests.stator.conftest import transactional_db
from tests.tasks.making import make_queue
from tests.testapp import actions as examples

__all__ = ["transactional_db"]


@pytest.fixture
def queue():
    """A queue that takes any action."""
    return make_queue()


@pytest.fixture
def count() -> Any:
    """``count(work)``: the statements that ``work`` sends, also past Django's cursor, and what it returns."""

    def counted(work: Any) -> Any:
        with sent() as statements:
            result = work()
        # A wake-up of workers is sent at most every few milliseconds, whatever the operation.
        return [each for each in statements if "pg_notify" not in each], result

    return counted


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    """The calls that actions of tests have seen are forgotten before each test."""
    examples.seen.clear()
    examples.release.clear()
    yield
    examples.release.set()
