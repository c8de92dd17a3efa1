"""Calls of tasks are forgotten before each test."""

import pytest

from tests.testapp import tasks as examples


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    examples.calls.clear()
