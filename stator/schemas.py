"""Schemas of PostgreSQL, for code of projects: which one is chosen, how to choose one, and lists of them."""

from stator.extensions.schemas.paths import current_schema, distributed, in_schema, on_this_node, tenants

__all__ = ["current_schema", "distributed", "in_schema", "on_this_node", "tenants"]
