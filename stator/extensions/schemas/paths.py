"""The schema of PostgreSQL where the statements of a context find their tables first: one schema for each tenant.

Workers, handlers and commands work with one ``search_path`` after another on the same connections.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.logs import CONTEXT
from stator.scopes import PATH, PATHS, UNCHANGED
from stator.statements import fetch_all

# libpq's numbers, spelled out because psycopg is optional.
IDLE, IN_ERROR = 0, 3

# Backends for schemas send it before each statement.
SEARCH_PATH = re.compile(r"SET search_path\b")

# Rows of a table with partitions, and of a table that Citus manages, are in other tables.
TABLES = """
SELECT nspname, relname,
  CASE WHEN relkind = 'r' AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN pg_class.oid::bigint
  ELSE 0 END
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind IN ('r', 'p') AND nspname = ANY(%s) AND relname = ANY(%s)
"""

# In pg_catalog: on every search_path, and on every node. The tables of a schema are on one node, each as one shard.
DISTRIBUTED = "SELECT nspname::text FROM pg_dist_schema JOIN pg_namespace ON pg_namespace.oid = schemaid ORDER BY 1"
DISTRIBUTED_HERE = """
SELECT DISTINCT nspname::text FROM pg_dist_schema JOIN pg_namespace ON pg_namespace.oid = schemaid
JOIN pg_dist_partition USING (colocationid)
JOIN pg_dist_shard USING (logicalrelid) JOIN pg_dist_placement USING (shardid)
WHERE groupid = (SELECT groupid FROM pg_dist_local_group) ORDER BY 1
"""


def current_schema() -> str:
    """Return the schema that :func:`in_schema` chose for this context; "" outside of it."""
    return PATH.get()


def in_schema(name: str) -> AbstractContextManager[None]:
    """Let the statements of this context find tables in a schema first, and then where they usually do.

    "" changes nothing. The tenant of django-tenants and the schema of django-pgschemas are set as well.
    """
    return _in_schema(name) if name else UNCHANGED


@contextmanager
def _in_schema(name: str) -> Iterator[None]:
    follow_connections()
    for connection in connections.all(initialized_only=True):
        # The code that ran before may have set another schema by itself.
        vars(connection).pop(NOTED, None)
        _follow(connection)
    token = PATH.set(name)
    try:
        with _activated(name):
            yield
    finally:
        PATH.reset(token)


@cache
def follow_connections() -> None:
    """Have the connections that are opened from now on, in any thread, follow the schema of the context."""
    connection_created.connect(_follow, dispatch_uid="stator.schemas")


def is_prepared_by_backend(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the connection's backend prepares the session, as django-tenants and django-pgschemas do."""
    return getattr(type(connection), "_cursor", None) is not vars(BaseDatabaseWrapper)["_cursor"]


def _exists(name: str, alias: str) -> bool:
    """Return whether a database has a schema with this name; databases of other vendors have none."""
    connection = connections[alias]
    if not capabilities_of(connection).has_schemas:
        return False
    return bool(fetch_all(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", [name]))


def tables_in(schemas: Sequence[str], models: Iterable[type[Model]], alias: str) -> dict[tuple[str, str], int]:
    """Return the ids of the tables of the models that exist, by schema and table; 0 if its rows are elsewhere."""
    tables = [model._meta.db_table for model in models]
    found = fetch_all(connections[alias], TABLES, [list(schemas), tables])
    return {(schema, table): number for schema, table, number in found}


def tenants() -> list[str]:
    """Return the schemas of all tenants of django-tenants or django-pgschemas, for the setting ``SCHEMAS``."""
    if apps.is_installed("django_pgschemas"):
        model = import_module("django_pgschemas.utils").get_tenant_model()
    else:
        model = import_module("django_tenants.utils").get_tenant_model()
    return list(model._base_manager.exclude(schema_name="public").values_list("schema_name", flat=True))


def distributed() -> list[str]:
    """Return the schemas that Citus distributes over its nodes, for the setting ``SCHEMAS``."""
    return _schemas(DISTRIBUTED)


def on_this_node() -> list[str]:
    """Return the schemas on the node of Citus that this process connects to, for ``SCHEMAS``.

    For workers that connect to a node each. A schema that moves is left to the workers of its new node.
    """
    return _schemas(DISTRIBUTED_HERE)


def _schemas(statement: str) -> list[str]:
    return [name for (name,) in fetch_all(connections["default"], statement)]


def connect() -> None:
    """Let schemas be the paths of scopes; django-tenants or django-pgschemas, if installed, may have chosen one."""
    PATHS.enter, PATHS.fields, PATHS.exists, PATHS.named, PATHS.finds = in_schema, _fields, _exists, _named, _finds
    if _fields_here not in CONTEXT:
        CONTEXT.append(_fields_here)
    if any(map(apps.is_installed, ("django_tenants", "django_pgschemas"))):
        PATHS.chosen = _chosen


def _fields(path: str) -> dict[str, str]:
    return {"schema": path} if path else {}


def _named(path: str) -> str:
    return f"schema {path!r}"


def _finds(connection: BaseDatabaseWrapper, text: str) -> bool:
    return is_prepared_by_backend(connection) and bool(SEARCH_PATH.match(text))


def _fields_here() -> dict[str, str]:
    return _fields(PATH.get())


def _chosen(connection: BaseDatabaseWrapper) -> str:
    if apps.is_installed("django_pgschemas"):
        return str(import_module("django_pgschemas.schema").get_current_schema().schema_name)
    return getattr(connection, "schema_name", None) or ""


def _activated(name: str) -> AbstractContextManager[object]:
    if not apps.is_installed("django_pgschemas"):
        return nullcontext()
    schema: AbstractContextManager[object] = import_module("django_pgschemas.schema").Schema.create(name)
    return schema


def _follow(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Make a connection set the schema of the context whenever it makes a cursor."""
    if not capabilities_of(connection).has_schemas:
        return
    attributes = vars(connection)
    if "_cursor" not in attributes:
        attributes["_cursor"] = partial(_cursor, connection, getattr(connection, "_cursor"))  # noqa: B009 - private
    if "signal" in kwargs:
        # The cursor that opened the connection is being made.
        _settle(connection)


def _cursor(connection: BaseDatabaseWrapper, make: Callable[..., object], name: str | None = None) -> object:
    if connection.connection is not None:
        _settle(connection)
    return make(name)


# The attributes of a connection of django-tenants: the schema that was set last, and the tenant before the first.
NOTED, BEFORE = "stator_schema", "stator_tenant_before"


def _settle(connection: Any) -> None:
    wanted = PATH.get()
    if hasattr(connection, "set_schema"):
        _set_tenant(connection, wanted)
    elif not is_prepared_by_backend(connection):
        _set_path(connection.connection, wanted)


def _set_tenant(connection: Any, wanted: str) -> None:
    """Set the tenant of django-tenants, but only when another one is wanted: a handler may choose one by itself."""
    attributes = vars(connection)
    if wanted == attributes.get(NOTED, ""):
        return
    attributes[NOTED] = wanted
    before = attributes.setdefault(BEFORE, connection.tenant)
    if wanted:
        connection.set_schema(wanted)
    else:
        connection.set_tenant(attributes.pop(BEFORE, before))


# The attributes of psycopg's connection: the schema of its session, None if a rollback may undo it, and the usual path.
PLACED, USUAL = "stator_schema", "stator_usual_path"


def _set_path(driver: Any, wanted: str) -> None:
    """Set the path of a session, which several connections of Django may use one after the other through a pool.

    libpq sends it, because psycopg would begin the transaction first, and a rollback would undo the change. If setting
    the path fails, so does the statement that is about to follow.
    """
    attributes, libpq = vars(driver), driver.pgconn
    if attributes.get(PLACED, "") == wanted or libpq.transaction_status == IN_ERROR:
        return
    usual = _usual(driver)
    path = (_before(wanted, usual) if wanted else usual).encode()
    libpq.exec_params(b"SELECT set_config('search_path', $1, false)", [path])
    attributes[PLACED] = wanted if libpq.transaction_status == IDLE else None


def path_of(connection: BaseDatabaseWrapper, schema: str) -> str:
    """Return the path of a schema for one transaction of ours on an open connection."""
    if is_prepared_by_backend(connection):
        return _before(schema, "public")
    return _before(schema, _usual(connection.connection))


def _usual(driver: Any) -> str:
    """Return the path of the session before any schema was chosen, which is read once."""
    attributes = vars(driver)
    if USUAL not in attributes:
        attributes[USUAL] = (driver.pgconn.exec_(b"SHOW search_path").get_value(0, 0) or b"").decode()
    path: str = attributes[USUAL]
    return path


def _before(schema: str, path: str) -> str:
    # Quoted as an identifier; the path itself is a parameter.
    own = schema.replace('"', '""')
    return f'"{own}", {path}'
