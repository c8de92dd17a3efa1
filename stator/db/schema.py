"""Tables and columns of models that are missing in a database, and its indexes. Waits for no lock on PostgreSQL."""

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from stator.db.retry import is_of_schema
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.schemas import current_schema, named

# The query reads the catalog: a statement on the table itself would wait while a migration locks it.
COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

# The valid indexes, by vendor.
INDEXES = {
    "postgresql": "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid WHERE indisvalid",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index'",
    "mysql": "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()",
}


def lack_of(model: type[Model], alias: str) -> str:
    """Return what the table of a model, or of a parent, lacks and the remedy, as one line; "" if it is complete."""
    return next(filter(None, (_lack_of(part, alias) for part in (model, *model._meta.get_parent_list()))), "")


def _lack_of(model: type[Model], alias: str) -> str:
    connection, table = connections[alias], model._meta.db_table
    there = _columns_of(connection, table)
    if not there:
        return f"{named(alias)} has no table {table} of {model._meta.label}; run manage.py migrate"
    wanted = {str(field.column): field.name for field in model._meta.local_concrete_fields}
    missing = sorted(column for column in wanted if _folded(connection, column) not in there)
    if not missing:
        return ""
    # A model that was given the mixin may have no migration yet.
    is_ours = any(wanted[column] in (*FRAMEWORK_COLUMNS, "state") for column in missing)
    remedy = "run manage.py makemigrations and migrate" if is_ours else "run manage.py migrate"
    lacks = f"lacks column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return f"table {table} of {model._meta.label} in {named(alias)} {lacks}; {remedy}"


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
