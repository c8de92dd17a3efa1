"""What the tests of the queue may use."""

from tests.stator.conftest import transactional_db

__all__ = ["transactional_db"]
