"""Logins of the tests of the admin."""

from tests.stator.admin.conftest import login

__all__ = ["login"]
