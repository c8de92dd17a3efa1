"""Fixtures for the tests of the queue."""

from tests.stator.conftest import transactional_db

__all__ = ["transactional_db"]
