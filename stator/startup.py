"""Whether the databases of some models can be worked in, looked at before anything is claimed."""

from typing import Any

from django.db import DatabaseError, InterfaceError, connections, router

from stator.columns import FRAMEWORK_COLUMNS
from stator.failures import bounded
from stator.models import Depth, History, Report, Stats


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
        for model in (*models, Stats, Depth, Report, History):
            _check_table(connection, cursor, model, tables)


def _check_table(connection: Any, cursor: Any, model: Any, tables: set[str]) -> None:
    table = model._meta.db_table
    if table not in tables:
        raise Unusable(f"database {connection.alias!r} has no table {table}; run manage.py migrate")
    found = {column.name for column in connection.introspection.get_table_description(cursor, table)}
    wanted = {field.column for field in model._meta.concrete_fields if field.name in (*FRAMEWORK_COLUMNS, "state")}
    if missing := sorted(wanted - found):
        raise Unusable(f"table {table} lacks {', '.join(missing)}; run manage.py makemigrations and migrate")
