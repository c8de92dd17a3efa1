"""Fixtures for pytest, there wherever the distribution is installed; elsewhere with ``-p stator.pytest_plugin``.

They need the database, so the test asks for it as any other: with the mark ``django_db`` of pytest-django.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

# pytest loads plugins before Django is ready, so the rest of the library is loaded by name, when a test asks for it.


@pytest.fixture
def stator_drain() -> Callable[..., int]:
    """``stator.testing.drain``: take rows as far as they go."""
    return _testing().drain


@pytest.fixture
def stator_attempt() -> Callable[[Any], Any]:
    """``stator.testing.attempt``: attempt one row now."""
    return _testing().attempt


@pytest.fixture
def stator_advance() -> Callable[..., None]:
    """``stator.testing.advance``: let time pass."""
    return _testing().advance


@pytest.fixture
def stator_runner() -> Any:
    """A ``StatorRunner`` over all models that stops when nothing is left to do and leaves signals to pytest."""
    return import_module("stator.runner").StatorRunner(until_idle=True, heed_signals=False)


def _testing() -> Any:
    return import_module("stator.testing")
