"""Clients of users with permissions."""

from tests.stator.admin.conftest import login, operator, own_sections, replace, viewer

__all__ = ["login", "operator", "own_sections", "replace", "viewer"]
