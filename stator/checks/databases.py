"""Checks of a database and of the rows in it."""

from collections.abc import Iterator

from django.core import checks
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.capabilities import capabilities_of
from stator.checks.messages import message
from stator.db.engines import REMEDY, is_replica, unsupported_driver, untested_engine
from stator.db.tables import lack_of
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.meta import by_database
from stator.survey.depths import depths
from stator.texts import counted
from stator.worker.startup import (
    OTHER_PACKAGE,
    OTHER_REMEDY,
    WRONG_CLOCK,
    clock_remedy,
    has_wrong_clock,
    migrated_by_another,
)

SQLITE_HINT = (
    'Set DATABASES[{alias!r}]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE", "timeout": 30, '
    '"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"}}.'
)


def check_drivers(models: list[type[StatorModel]]) -> Iterator[checks.CheckMessage]:
    """E304: PostgreSQL through psycopg2 or psycopg 3.1; workers need 3.2."""
    for alias in sorted(by_database(models)):
        if driver := unsupported_driver(connections[alias]):
            text = f"The PostgreSQL database {alias!r} uses {driver}; Stator needs psycopg 3.2."
            yield message("E304", text, f"{REMEDY}.")


def check_sqlite(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """W301: with SQLite's defaults, readers and writers fail with "database is locked"."""
    connection = connections[alias]
    fails = capabilities_of(connection).fails_when_locked and alias in by_database(models)
    if fails and (lacking := _lacking(connection)):
        text = f"The SQLite database {alias!r} holds managed models and is opened without {' and '.join(lacking)}."
        yield message("W301", text, SQLITE_HINT.format(alias=alias))


def _lacking(connection: BaseDatabaseWrapper) -> list[str]:
    config = connection.settings_dict
    options = config.get("OPTIONS") or {}
    lacking = []
    if str(options.get("transaction_mode", "")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        lacking.append("transaction_mode IMMEDIATE")
    if "wal" not in str(options.get("init_command", "")).lower() and ":memory:" not in str(config.get("NAME")):
        lacking.append("journal_mode WAL")
    return lacking


def check_migrations(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """E301: another package of this name was migrated, so ``migrate`` would create none of our tables."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
    if migrated_by_another(connection, tables):
        hint = f"To go on, {OTHER_REMEDY}. See docs/guides/from-takahe.rst."
        yield message("E301", f"Database {alias!r}: {OTHER_PACKAGE}.", hint)


def check_primary(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """E403: managed models are written to a read replica."""
    written = by_database(models).get(alias, [])
    if written and is_replica(connections[alias]):
        sign = capabilities_of(connections[alias]).replica_sign
        text = (
            f"Database {alias!r} is a read replica ({sign}), so workers cannot serve {counted(len(written), 'model')}."
        )
        hint = f"Point DATABASES[{alias!r}] at the primary, or route the models to another database."
        yield message("E403", text, hint)


def check_engine(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """E306: an engine that lacks what a claim needs. W306: an engine on which none of our tests run."""
    if alias not in by_database(models) or (engine := untested_engine(connections[alias])) is None:
        return
    if engine.lacks:
        yield message("E306", f"Database {alias!r} is {engine.name}, which {engine.lacks}.", _sentence(engine.remedy))
        return
    hint = "Run the tests of Stator on it. If you rely on it, add stator.W306 to SILENCED_SYSTEM_CHECKS."
    yield message("W306", f"Database {alias!r} is {engine.name}, on which Stator is not tested.", hint)


def check_clock(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """E305: the clock of MariaDB or MySQL is in another time zone than the columns."""
    if alias in by_database(models) and has_wrong_clock(connections[alias]):
        yield message("E305", f"Database {alias!r}: {WRONG_CLOCK}.", _sentence(clock_remedy(alias)))


def _sentence(remedy: str) -> str:
    return f"{remedy[:1].upper()}{remedy[1:]}."


def check_rows(models: list[type[StatorModel]], alias: str) -> Iterator[checks.CheckMessage]:
    """W302: rows in states that the code does not know; no worker attempts them."""
    for model in models:
        # ``migrate`` runs the checks before it adds a table or its columns.
        if not router.allow_migrate_model(alias, model) or lack_of(model, alias):
            continue
        unknown_states = depths(OperatorQuerySet(model, using=alias)).unknown_states
        if unknown := sorted(set(unknown_states).difference(model.state_graph.renames)):
            names = ", ".join(repr(name) for name in unknown[:10])
            graph = model.state_graph.__name__
            text = f"Rows of {model.__name__} are in states that {graph} does not have: {names}."
            command = f"manage.py stator move {model._meta.label} STATE --state {unknown[0]} --reason '...'"
            hint = f"Declare renamed_from= on the state that replaced it, or move the rows: {command}."
            yield message("W302", text, hint, model)
