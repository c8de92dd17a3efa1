"""The statements that claim, record and reap rows, for each kind of database."""

from collections.abc import Callable
from importlib import import_module

from django.db import connections, router
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.db.interface import Operations, StoreParts
from stator.scopes import Scope


def operations_for(model: type[Model], settings: Settings, worker_id: str, alias: str | None = None) -> Operations:
    """Return the operations on a model in the given database; by default the routers choose it as for writes."""
    return operations_in(Scope(alias or router.db_for_write(model)), model, settings, worker_id)


def operations_in(scope: Scope, model: type[Model], settings: Settings, worker_id: str) -> Operations:
    """Return the operations on the rows of a model in a scope."""
    statements = capabilities_of(connections[scope.alias]).statements
    parts_of: Callable[[Operations], StoreParts] = import_module(statements).parts_of
    return Operations(model, scope, settings, worker_id, parts_of)
