"""The operations of the tests of the database."""

from tests.stator.db.conftest import make, operations

__all__ = ["make", "operations"]
