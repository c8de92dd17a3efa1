"""What is done before a process claims anything: its databases are looked at, and its garbage collector is set."""

import gc
import random
import threading
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, router

from stator.columns import FRAMEWORK_COLUMNS
from stator.db.retry import is_outage
from stator.failures import bounded
from stator.models import Depth, History, Limit, Pause, Report, Stats, Worker

# Seconds, jittered, between looks at a database that cannot be used at this moment: it may be starting as well, or
# has just cut our connection. Connecting does not tell those from a wrong name, so that is reported as late as this.
PAUSES = (0.1, 0.2, 0.3, 0.5, 0.8)

# What workers do with the tables of the framework, in the words of SQL.
ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
OWN: dict[Any, tuple[str, ...]] = {
    Stats: ALL, Depth: ALL, Report: ALL, Worker: ALL,
    History: ("SELECT", "INSERT"), Limit: ("SELECT", "INSERT", "UPDATE"), Pause: ("SELECT", "DELETE"),
}  # fmt: skip

# How many objects come to be before the garbage collector looks at the youngest; Python's own is 700 to 2,000.
YOUNGEST = 10_000


class Unusable(Exception):
    """The database cannot be worked in; the message names it, the trouble and the remedy."""


def collect_rarely() -> None:
    """Have the garbage collector of a process that does nothing but work look for cycles less often.

    A batch is some thousand objects that all live until it is written. By its default the collector goes through them
    every few dozen rows and finds nothing: a seventh of the worker's own processor time. A threshold that is higher
    still is left as it is, and a collector that is off stays so.
    """
    youngest, *older = gc.get_threshold()
    if 0 < youngest < YOUNGEST:
        gc.set_threshold(YOUNGEST, *older)


def check_database(models: list[Any], alias: str | None = None) -> None:
    """Raise :class:`Unusable` when a database is out of reach, a replica, or lacks tables, columns or grants."""
    by_alias: dict[str, list[Any]] = {}
    for model in models:
        by_alias.setdefault(alias or router.db_for_write(model), []).append(model)
    for name, group in by_alias.items():
        try:
            _check_patiently(name, group)
        except (DatabaseError, InterfaceError) as error:
            text = bounded(" ".join(str(error).split()), 300)
            raise Unusable(f"database {name!r} cannot be used: {text}; check DATABASES[{name!r}]") from error


def _check_patiently(alias: str, models: list[Any]) -> None:
    end = time.monotonic() + sum(PAUSES)
    for pause in PAUSES:
        try:
            return _check(alias, models)
        except (DatabaseError, InterfaceError) as error:
            connections[alias].close_if_unusable_or_obsolete()
            # Past the end: the way to the database is so slow that one look took all the time there was.
            if not is_outage(error) or time.monotonic() > end:
                raise
        threading.Event().wait(pause * random.uniform(0.5, 1.0))
    return _check(alias, models)


def _check(alias: str, models: list[Any]) -> None:
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_is_in_recovery()")
            if cursor.fetchone()[0]:
                raise Unusable(f"database {alias!r} is a read replica (in recovery); point it at the primary")
        tables = set(connection.introspection.table_names(cursor))
        for model in (*models, *OWN):
            _check_table(connection, cursor, model, tables)


def _check_table(connection: Any, cursor: Any, model: Any, tables: set[str]) -> None:
    table = model._meta.db_table
    # A name that comes quoted, perhaps with a schema, is not among those; then reading its columns tells.
    if table not in tables and not table.startswith('"'):
        raise Unusable(f"database {connection.alias!r} has no table {table}; run manage.py migrate")
    if connection.vendor == "postgresql":
        _check_privileges(connection, cursor, model)
    # Not by introspection, which does not find the columns of a table whose name comes quoted.
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - a quoted name
    found = {column[0] for column in cursor.description}
    wanted = {field.column for field in model._meta.concrete_fields if field.name in (*FRAMEWORK_COLUMNS, "state")}
    if missing := sorted(wanted - found):
        raise Unusable(f"table {table} lacks {', '.join(missing)}; run manage.py makemigrations and migrate")


def _check_privileges(connection: Any, cursor: Any, model: Any) -> None:
    table, needed = connection.ops.quote_name(model._meta.db_table), _needed(model)
    # Workers may have been granted only some columns, such as those of the framework; a row is deleted as a whole.
    parts = [f"has_{'table' if each == 'DELETE' else 'any_column'}_privilege(%s, %s)" for each in needed]
    cursor.execute(f"SELECT current_user, {', '.join(parts)}", [name for each in needed for name in (table, each)])
    role, *granted = cursor.fetchone()
    if missing := ", ".join(each for each, is_granted in zip(needed, granted, strict=True) if not is_granted):
        role = connection.ops.quote_name(role)
        raise Unusable(
            f"role {role} lacks {missing} on table {table} in database {connection.alias!r}; "
            f"GRANT {missing} ON {table} TO {role}"
        )


def _needed(model: Any) -> tuple[str, ...]:
    """The privileges that workers need on the table of a model."""
    if model in OWN:
        return OWN[model]
    deletes = any(state.delete_after is not None for state in model.state_graph.states.values())
    return ("SELECT", "UPDATE", *["DELETE"] * deletes)
