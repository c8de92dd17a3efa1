"""The statements that claim, record and reap rows, for each kind of database."""

from collections.abc import Callable
from importlib import import_module

from django.db import connections, router
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.db.interface import Operations, Parts


def operations_for(
    model: type[Model], settings: Settings, worker_id: str, alias: str | None = None, schema: str = ""
) -> Operations:
    """Return the operations on a model in the given database; by default the routers choose it as for writes."""
    alias = alias or router.db_for_write(model)
    statements = capabilities_of(connections[alias]).statements
    parts_of: Callable[[Operations], Parts] = import_module(statements).parts_of
    return Operations(model, alias, settings, worker_id, parts_of, schema)
