"""What is done before a process claims anything: its databases are looked at, and its garbage collector is set."""

import gc
import random
import threading
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, router
from django.db.migrations.recorder import MigrationRecorder

from stator.db.drivers import REMEDY, unsupported_driver
from stator.db.files import missing_file
from stator.db.retry import is_outage
from stator.db.schema import lack_of
from stator.models import Depth, History, Limit, Pause, Report, Stats, Worker
from stator.texts import one_line

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


# What another package has in common with ours: its label, and the name of its first migration.
FIRST = ("stator", "0001_initial")
OTHER_PACKAGE = "the migrations that are recorded for stator are those of another package of this name"
OTHER_REMEDY = "put that package back and run manage.py migrate stator zero with it"


class Unusable(Exception):
    """The database cannot be worked in; the message names it, the trouble and the remedy, in one line or several."""


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
    """Raise :class:`Unusable` when a database is out of reach, a replica, or lacks grants or tables of the framework.

    Also when no model has a complete table; the message has one line for each.
    """
    lacking = lacks_in(models, alias)
    if models and len(lacking) == len(models):
        raise Unusable("\n".join(lacking.values()))


def lacks_in(models: list[Any], alias: str | None = None) -> dict[Any, str]:
    """Return the models whose tables lack something, each with one line about it; raise what concerns all models."""
    lacking: dict[Any, str] = {}
    by_alias: dict[str, list[Any]] = {}
    for model in models:
        by_alias.setdefault(alias or router.db_for_write(model), []).append(model)
    for name, group in by_alias.items():
        try:
            lacking |= _check_patiently(name, group)
        except (DatabaseError, InterfaceError) as error:
            text = one_line(error)
            raise Unusable(f"database {name!r} cannot be used: {text}; check DATABASES[{name!r}]") from error
    return lacking


def _check_patiently(alias: str, models: list[Any]) -> dict[Any, str]:
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


def _check(alias: str, models: list[Any]) -> dict[Any, str]:
    connection = connections[alias]
    if driver := unsupported_driver(connection):
        raise Unusable(f"database {alias!r} is reached by {driver}, which Stator does not support; {REMEDY}")
    if path := missing_file(connection):
        raise Unusable(f"database {alias!r}: its file {path} does not exist; put it back, or run manage.py migrate")
    with connection.cursor() as cursor:
        if is_replica(connection):
            raise Unusable(f"database {alias!r} is a read replica (in recovery); point it at the primary")
        tables = set(connection.introspection.table_names(cursor))
        if migrated_by_another(connection, tables):
            raise Unusable(f"database {alias!r}: {OTHER_PACKAGE}; {OTHER_REMEDY}")
        lacking = {}
        for model in (*models, *OWN):
            if lack := lack_of(model, alias):
                lacking[model] = lack
            elif connection.vendor == "postgresql":
                _check_privileges(connection, cursor, model)
    if not lacking.keys().isdisjoint(OWN):
        # One line is enough where nothing was migrated yet.
        raise Unusable(next(iter(lacking.values())))
    return lacking


def is_replica(connection: Any) -> bool:
    """Whether a database takes no writes because it follows another one."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        return bool(cursor.fetchone()[0])


def migrated_by_another(connection: Any, tables: set[str]) -> bool:
    """Whether the migrations that are recorded for our label are those of another package, such as Takahe's Stator.

    Then ``migrate`` takes our first one for applied and makes no table. That of statistics they have as well.
    """
    return (
        tables.isdisjoint(model._meta.db_table for model in OWN if model is not Stats)
        and router.allow_migrate_model(connection.alias, History)
        and FIRST in MigrationRecorder(connection).applied_migrations()
    )


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
