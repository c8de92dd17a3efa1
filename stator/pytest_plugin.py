"""Fixtures for pytest. An installed distribution registers them; in a checkout use ``-p stator.pytest_plugin``.

They need the database, so a test must have the mark ``django_db`` of pytest-django.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stator.graph.outcomes import Outcome
    from stator.models import StatorModel
    from stator.runner import StatorRunner

# pytest loads plugins before Django is set up, so the rest of the library is imported when a test needs it.


@pytest.fixture
def stator_drain() -> Callable[..., int]:
    """Return ``stator.testing.drain``, which attempts rows until none is ready."""
    return _testing().drain


@pytest.fixture
def stator_attempt() -> "Callable[[StatorModel], Outcome]":
    """Return ``stator.testing.attempt``, which attempts one row now."""
    return _testing().attempt


@pytest.fixture
def stator_advance() -> Callable[..., None]:
    """Return ``stator.testing.advance``, which moves the times of rows into the past."""
    return _testing().advance


@pytest.fixture
def stator_runner() -> "StatorRunner":
    """Return a ``StatorRunner`` for all models that stops when idle and leaves the process's signals to pytest."""
    return import_module("stator.runner").StatorRunner(until_idle=True, heed_signals=False)


def _testing() -> ModuleType:
    return import_module("stator.testing")
