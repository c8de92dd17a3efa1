"""The statements that claim, record and reap rows, for each kind of database."""

from collections.abc import Callable
from importlib import import_module

from django.db import connections, router
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.db.interface import Operations, Parts

# The vendors with statements of their own, where the ORM is not enough or not fast enough. Any other database gets the
# portable statements.
VENDORS = {
    "postgresql": "stator.db.postgresql", "citus": "stator.db.citus",
    "sqlite": "stator.db.sqlite", "mysql": "stator.db.mysql",
}  # fmt: skip
PORTABLE = "stator.db.portable"


def operations_for(
    model: type[Model], settings: Settings, worker_id: str, alias: str | None = None, schema: str = ""
) -> Operations:
    """Return the operations on a model in the given database; by default the routers choose it as for writes."""
    alias = alias or router.db_for_write(model)
    vendor = VENDORS.get(capabilities_of(connections[alias]).name, PORTABLE)
    parts_of: Callable[[Operations], Parts] = import_module(vendor).parts_of
    return Operations(model, alias, settings, worker_id, parts_of, schema)
