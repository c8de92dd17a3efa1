"""Checks of databases and tables before a process claims anything; also sets its garbage collector."""

import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.db.engines import REMEDY, refusal_of_writes, unsupported_driver, unusable_engine
from stator.db.files import missing_file
from stator.db.retry import is_outage
from stator.db.tables import lack_of
from stator.rows.clock import stored_zone
from stator.rows.meta import by_database, graph_of
from stator.rows.record_tables import RECORD_TABLES
from stator.rows.workers import Worker
from stator.scopes import Scope, entering
from stator.statements import fetch_all
from stator.texts import one_line

logger = logging.getLogger("stator.worker")

Result = TypeVar("Result")

# Scopes that a worker polls all the time; of more than these, it leaves those alone that have nothing to do.
FEW_SCOPES = 5

# Seconds, jittered, between checks of a database that cannot be used: it may be starting too, or has just cut our
# connection. Connecting cannot distinguish that from a wrong name, so a wrong name is reported after all these delays.
DELAYS = (0.1, 0.2, 0.3, 0.5, 0.8)

# The SQL privileges that workers need on the framework's tables.
OWN = {table.model: table.privileges for table in RECORD_TABLES if table.privileges}

# Allocations before the garbage collector checks the youngest objects; Python's own values are 700 to 2,000.
YOUNGEST = 10_000


# The app label and first migration that another package shares with ours.
FIRST = ("stator", "0001_initial")
OTHER_PACKAGE = "the recorded migrations of the app stator belong to another package with that name"
WRONG_CLOCK = "its clock is not in the time zone of its columns, so times in its rows would be off by hours"
OTHER_REMEDY = (
    "reinstall that package, remove the migrations that were made with this one, and run manage.py migrate stator zero"
)


class Unusable(Exception):
    """The database cannot be used; the message has its name, the problem and the remedy, in one or several lines."""


def collect_rarely() -> None:
    """Make the garbage collector run less often, in a process that only runs a worker.

    A batch is some thousand objects that all live until it is written. By default the collector checks them every few
    dozen rows and finds nothing, which takes a seventh of the worker's own processor time. A higher threshold is kept,
    and a disabled collector stays off.
    """
    youngest, *older = gc.get_threshold()
    if 0 < youngest < YOUNGEST:
        gc.set_threshold(YOUNGEST, *older)


def check_database(models: Sequence[type[Model]], alias: str | None = None, scopes: "Scopes | None" = None) -> None:
    """Raise :class:`Unusable` if a database is out of reach, a replica, or lacks grants or tables of the framework.

    Also raised if no model has a complete table; the message then has one line for each. ``scopes``: those to serve, if
    they are not just the databases.
    """
    lacking: list[str] = []
    served = models_by_path(models, scopes)
    # The tables of many scopes are read when there is work for them.
    checked = dict(islice(served.items(), FEW_SCOPES if len(served) <= FEW_SCOPES else 1))
    for path, group in checked.items():
        with entering(path):
            lacking += lacks_in(group, alias).values()
    if models and len(lacking) == sum(map(len, checked.values())):
        raise Unusable("\n".join(lacking))


def lacks_in(models: Sequence[type[Model]], alias: str | None = None) -> dict[type[Model], str]:
    """Return one line for each model whose table lacks something; raise problems that concern all models."""
    lacking: dict[type[Model], str] = {}
    for name, group in by_database(models, alias).items():
        lacking |= patiently(name, partial(_check, name, group))
    return lacking


# The models whose table is in each scope, with the ids of their tables.
Scopes = dict[Scope, dict[type[Model], int]]


def models_by_path(models: Sequence[type[Model]], scopes: Scopes | None) -> dict[str, list[type[Model]]]:
    """Return the models in the scopes with each path; all models under "" if there are no such scopes."""
    served: dict[str, list[type[Model]]] = {} if scopes is not None else {"": list(models)}
    for scope, tables in (scopes or {}).items():
        served.setdefault(scope.path, []).extend(tables)
    return served


def patiently(alias: str, look: Callable[[], Result]) -> Result:
    """Return what ``look`` returns; after an error look again, since the database may be starting too."""
    end = time.monotonic() + sum(DELAYS)
    for delay in (*DELAYS, 0.0):
        try:
            return look()
        except (DatabaseError, InterfaceError) as error:
            connections[alias].close_if_unusable_or_obsolete()
            # If the time is over before the delays are, the connection is so slow that the checks took all the time.
            if not (delay and is_outage(error)) or time.monotonic() > end:
                text = one_line(error)
                raise Unusable(f"database {alias!r} cannot be used: {text}; check DATABASES[{alias!r}]") from error
        threading.Event().wait(delay * random.uniform(0.5, 1.0))
    raise AssertionError("the last look returns or raises")


def _check(alias: str, models: Sequence[type[Model]]) -> dict[type[Model], str]:
    connection = connections[alias]
    if driver := unsupported_driver(connection):
        raise Unusable(f"database {alias!r} uses {driver}, which Stator does not support; {REMEDY}")
    if path := missing_file(connection):
        raise Unusable(f"database {alias!r}: its file {path} does not exist; put it back, or run manage.py migrate")
    if engine := unusable_engine(connection):
        raise Unusable(f"database {alias!r} is {engine.name}, which {engine.lacks}; {engine.remedy}")
    with connection.cursor() as cursor:
        if refusal := refusal_of_writes(connection):
            raise Unusable(f"database {alias!r} {refusal}")
        if has_wrong_clock(connection):
            raise Unusable(f"database {alias!r}: {WRONG_CLOCK}; {clock_remedy(alias)}")
        tables = set(connection.introspection.table_names(cursor))
        if migrated_by_another(connection, tables):
            raise Unusable(f"database {alias!r}: {OTHER_PACKAGE}; {OTHER_REMEDY}")
        lacking = {}
        for model in (*models, *OWN):
            if lack := lack_of(model, alias):
                lacking[model] = lack
            elif capabilities_of(connection).reports_privileges:
                _check_privileges(connection, cursor, model)
    if not lacking.keys().isdisjoint(OWN):
        # The first line is enough if nothing is migrated yet.
        raise Unusable(next(iter(lacking.values())))
    return lacking


def has_wrong_clock(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the clock of a session is in another time zone than the columns, in winter or in summer."""
    if not capabilities_of(connection).clock_in_zone_of_session:
        return False
    zone = stored_zone(connection)
    wanted = [datetime(2025, month, 1, tzinfo=UTC).astimezone(zone).replace(tzinfo=None) for month in (1, 7)]
    right = "SELECT FROM_UNIXTIME(1735689600) = %s AND FROM_UNIXTIME(1751328000) = %s"
    return not fetch_all(connection, right, wanted)[0][0]


def clock_remedy(alias: str) -> str:
    """Return how to have the clock of a session in the zone of the columns."""
    zone = stored_zone(connections[alias])
    name = "+00:00" if zone is UTC or str(zone) == "UTC" else str(zone)
    return f"""set DATABASES[{alias!r}]["OPTIONS"]["init_command"] = "SET time_zone = '{name}'\""""


def migrated_by_another(connection: BaseDatabaseWrapper, tables: set[str]) -> bool:
    """Return whether the migrations recorded for our label belong to another package, such as Takahe's Stator.

    ``migrate`` then takes our first migration for applied and creates no table. That package also has a statistics
    table.
    """
    return (
        tables.isdisjoint(model._meta.db_table for model in OWN if model._meta.model_name != "stats")
        and router.allow_migrate_model(connection.alias, Worker)
        and FIRST in MigrationRecorder(connection).applied_migrations()
    )


def _check_privileges(connection: BaseDatabaseWrapper, cursor: CursorWrapper, model: type[Model]) -> None:
    table, needed = connection.ops.quote_name(model._meta.db_table), _needed(model)
    # Workers may have grants on single columns only, such as the framework's; DELETE is a grant on the table.
    parts = [f"has_{'table' if each == 'DELETE' else 'any_column'}_privilege(%s, %s)" for each in needed]
    cursor.execute(f"SELECT current_user, {', '.join(parts)}", [name for each in needed for name in (table, each)])
    role, *granted = cursor.fetchone()
    if missing := ", ".join(each for each, is_granted in zip(needed, granted, strict=True) if not is_granted):
        role = connection.ops.quote_name(role)
        raise Unusable(
            f"role {role} lacks {missing} on table {table} in database {connection.alias!r}; "
            f"GRANT {missing} ON {table} TO {role}"
        )


def _needed(model: type[Model]) -> tuple[str, ...]:
    """Return the privileges that workers need on the table of a model."""
    if model in OWN:
        return OWN[model]
    deletes = any(state.delete_after is not None for state in graph_of(model).states.values())
    return ("SELECT", "UPDATE", *["DELETE"] * deletes)
