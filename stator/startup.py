"""Whether the databases of some models can be worked in, looked at before anything is claimed."""

from typing import Any

from django.db import DatabaseError, InterfaceError, connections, router

from stator.columns import FRAMEWORK_COLUMNS
from stator.failures import bounded
from stator.models import Depth, History, Limit, Pause, Report, Stats, Worker


class Unusable(Exception):
    """The database cannot be worked in; the message names it, the trouble and the remedy."""


def check_database(models: list[Any], alias: str | None = None) -> None:
    """Raise :class:`Unusable` when a database is out of reach, a read replica, or lacks tables or columns."""
    by_alias: dict[str, list[Any]] = {}
    for model in models:
        by_alias.setdefault(alias or router.db_for_write(model), []).append(model)
    for name, group in by_alias.items():
        try:
            _check(name, group)
        except (DatabaseError, InterfaceError) as error:
            text = bounded(" ".join(str(error).split()), 300)
            raise Unusable(f"database {name!r} cannot be used: {text}; check DATABASES[{name!r}]") from error


def _check(alias: str, models: list[Any]) -> None:
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_is_in_recovery()")
            if cursor.fetchone()[0]:
                raise Unusable(f"database {alias!r} is a read replica (in recovery); point it at the primary")
        tables = set(connection.introspection.table_names(cursor))
        for model in (*models, Stats, Depth, Report, History, Limit, Pause, Worker):
            _check_table(connection, cursor, model, tables)


def _check_table(connection: Any, cursor: Any, model: Any, tables: set[str]) -> None:
    table = model._meta.db_table
    # A name that comes quoted, perhaps with a schema, is not among those; then reading its columns tells.
    if table not in tables and not table.startswith('"'):
        raise Unusable(f"database {connection.alias!r} has no table {table}; run manage.py migrate")
    # Not by introspection, which does not find the columns of a table whose name comes quoted.
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - a quoted name
    found = {column[0] for column in cursor.description}
    wanted = {field.column for field in model._meta.concrete_fields if field.name in (*FRAMEWORK_COLUMNS, "state")}
    if missing := sorted(wanted - found):
        raise Unusable(f"table {table} lacks {', '.join(missing)}; run manage.py makemigrations and migrate")
