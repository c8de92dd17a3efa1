"""Statements that are compiled once for each shape, with their constants in their text, and sent with other values."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db.interface import Operations
from stator.db.values import Params, Row
from stator.statements import Statement, StatementCache

_cache: StatementCache[Statement] = StatementCache()


@cache
def sessions() -> ModuleType:
    """Return ``stator.db.session``, by its name: it needs psycopg, which a project on another database may not have."""
    return import_module("stator.db.session")


def keep(operations: Operations, key: Hashable, make: Callable[[], Statement]) -> Statement:
    """Return the statement of this key, which ``make`` builds the first time, with its constants in its text.

    All parts share one, and operations on all rows have another.
    """
    return _cache.get((key, operations.part is None), lambda: inlined(operations.connection, make()))


def inlined(connection: BaseDatabaseWrapper, statement: Statement) -> Statement:
    """Return a statement with its constants in its text, on PostgreSQL."""
    changed: Statement = sessions().inlined(connection, statement)
    return changed


def send(operations: Operations, statement: Statement, planner: str, values: Mapping[str, object]) -> list[Row]:
    """Send a statement with these values; in a caller's transaction an error breaks no more than this statement."""
    params: Params = statement.bind(operations.connection, {**values, "part": operations.part})
    with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
        return operations.fetch(statement.text, params, planner, often=True)
