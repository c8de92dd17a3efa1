"""The statements that claim, record and reap rows, for each kind of database."""

from importlib import import_module
from typing import Any

from django.db import connections, router

from stator.conf import Settings
from stator.db.base import Operations

# Databases for which the ORM is not enough or not fast enough; any other database gets the portable statements.
VENDORS = {"postgresql": "stator.db.postgresql", "sqlite": "stator.db.sqlite", "mysql": "stator.db.mysql"}


def operations_for(model: Any, settings: Settings, worker_id: str, alias: str | None = None) -> Operations:
    """Return the operations on a model in the given database, by default the one that the routers choose for writes."""
    alias = alias or router.db_for_write(model)
    vendor = VENDORS.get(connections[alias].vendor)
    made: type[Operations] = import_module(vendor).Operations if vendor else Operations
    return made(model, alias, settings, worker_id)
