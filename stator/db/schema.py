"""What is missing in a table of a model, or does not fit there, and its indexes. Waits for no lock on PostgreSQL."""

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.db.retry import is_of_schema
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.schemas import current_schema, named

# The query reads the catalog: a statement on the table itself would wait while a migration locks it.
COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

# How the extension Citus manages a table. Its catalogs exist only where the extension does.
CITUS_CATALOGS = "SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL"
CITUS = """
SELECT CASE WHEN partmethod <> 'n' THEN 'distributed' WHEN repmodel = 't' THEN 'reference'
  WHEN colocationid IN (SELECT colocationid FROM pg_catalog.pg_dist_schema) THEN 'schema' ELSE 'local' END
FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass(%s)
"""

# Each of these kinds in words, and what makes the table an ordinary one.
_ORDINARY = "move its rows to an ordinary table: undistribute_table() does it unless the table has an identity column"
CITUS_KINDS = {
    "distributed": ("a distributed table of Citus", _ORDINARY),
    "reference": ("a reference table of Citus", _ORDINARY),
    "schema": ("in a distributed schema of Citus", 'set ENGINE to "stator.citus"'),
    "local": ("a local table of Citus", "drop the foreign keys that connect it to reference tables"),
}

# The valid indexes, by vendor.
INDEXES = {
    "postgresql": "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid WHERE indisvalid",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index'",
    "mysql": "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()",
}


def lack_of(model: type[Model], alias: str) -> str:
    """Return what is wrong with the table of a model, or of a parent, and the remedy, as one line; "" if it fits."""
    return next(filter(None, (_lack_of(part, alias) for part in (model, *model._meta.get_parent_list()))), "")


def _lack_of(model: type[Model], alias: str) -> str:
    connection, table = connections[alias], model._meta.db_table
    there = _columns_of(connection, table)
    if not there:
        return f"{named(alias)} has no table {table} of {model._meta.label}; run manage.py migrate"
    wanted = {str(field.column): field.name for field in model._meta.local_concrete_fields}
    missing = sorted(column for column in wanted if _folded(connection, column) not in there)
    if not missing:
        return _of_citus(connection, model)
    # A model that was given the mixin may have no migration yet.
    is_ours = any(wanted[column] in (*FRAMEWORK_COLUMNS, "state") for column in missing)
    remedy = "run manage.py makemigrations and migrate" if is_ours else "run manage.py migrate"
    lacks = f"lacks column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return f"table {table} of {model._meta.label} in {named(alias)} {lacks}; {remedy}"


def _of_citus(connection: BaseDatabaseWrapper, model: type[Model]) -> str:
    """Return that Citus manages a table, so that its rows cannot be claimed, and the remedy; "" if it does not."""
    if connection.vendor != "postgresql":
        return ""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(CITUS_CATALOGS)
        if not cursor.fetchone()[0]:
            return ""
        cursor.execute(CITUS, [connection.ops.quote_name(table)])
        found = cursor.fetchone()
    if not found or (found[0] == "schema" and capabilities_of(connection).name == "citus"):
        return ""
    kind, remedy = CITUS_KINDS[found[0]]
    where = f"table {table} of {model._meta.label} in {named(connection.alias)}"
    return f"{where} is {kind}, which refuses to claim its rows; {remedy}"


def _columns_of(connection: BaseDatabaseWrapper, table: str) -> set[str]:
    """Return the names of a table's columns; an empty set if there is no such table."""
    name = connection.ops.quote_name(table)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(COLUMNS, [name])
            return {column for (column,) in cursor.fetchall()}
        try:
            # Introspection would not find the columns of a table with a quoted name.
            cursor.execute(f"SELECT * FROM {name} LIMIT 0")  # noqa: S608 - a quoted name
        except DatabaseError as error:
            if is_of_schema(error):
                return set()
            raise
        return {_folded(connection, column[0]) for column in cursor.description}


def _folded(connection: BaseDatabaseWrapper, column: str) -> str:
    """Return a column's name for comparison: only on PostgreSQL does case matter."""
    return column if connection.vendor == "postgresql" else column.lower()


def index_names(connection: BaseDatabaseWrapper) -> set[str] | None:
    """Return the names of the valid indexes in a database; None if this is not known of its vendor."""
    if connection.vendor not in INDEXES:
        return None
    schema = current_schema()
    with connection.cursor() as cursor:
        cursor.execute(
            INDEXES[connection.vendor] + (" AND relnamespace = to_regnamespace(%s)" if schema else ""),
            [connection.ops.quote_name(schema)] if schema else None,
        )
        return {name for (name,) in cursor.fetchall()}
