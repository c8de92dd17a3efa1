"""The calls that actions of tests have seen are forgotten before each test."""

from typing import Any

import pytest

from tests.testapp import actions as examples


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    examples.seen.clear()
    examples.release.clear()
    yield
    examples.release.set()
