"""Logins and other admins, as for the pages of managed models."""

from tests.stator.admin.conftest import login, replace

__all__ = ["login", "replace"]
