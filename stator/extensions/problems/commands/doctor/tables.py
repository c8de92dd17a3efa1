"""Checks of a database's tables, columns, indexes and options."""

from django.db import connections

from stator.capabilities import capabilities_of
from stator.checks.databases import check_sqlite
from stator.db.tables import index_names
from stator.models import StatorModel
from stator.rows.indexes import own_indexes
from stator.rows.problem import ERROR, OK, WARNING, Problem
from stator.worker.startup import Unusable, lacks_in

MIGRATE = "run manage.py makemigrations and migrate"


def usable(alias: str, models: list[type[StatorModel]]) -> tuple[Problem, list[type[StatorModel]]]:
    """Check that the database is a reachable primary with all tables; also return the models with complete tables."""
    try:
        lacking = lacks_in(models, alias)
    except Unusable as error:
        message, _, remedy = str(error).rpartition("; ")
        return Problem("database", message, remedy=remedy, level=ERROR), []
    if lacking:
        # There are few kinds of remedies; the longest includes making migrations.
        messages, remedies = zip(*(lack.split("; ") for lack in lacking.values()), strict=True)
        finding = Problem("database", "; ".join(messages), remedy=max(remedies, key=len), level=ERROR)
    else:
        finding = Problem("database", "reachable and writable, with all tables and columns", level=OK)
    return finding, [model for model in models if model not in lacking]


def indexes(alias: str, models: list[type[StatorModel]]) -> Problem:
    """Check that every model has the indexes that the workers' statements need."""
    connection = connections[alias]
    present = index_names(connection)
    if present is None:
        return Problem("indexes", f"not checked on {capabilities_of(connection).name}", level=OK)
    # An index on expressions is not missing on a database that supports none, nor columns in their place.
    has_all = connection.features.supports_expression_indexes or capabilities_of(connection).needs_generated_columns
    each = (index for model in models for index in own_indexes(model))
    wanted = [index.name for index in each if has_all or not index.contains_expressions]
    if missing := [name for name in wanted if name not in present]:
        return Problem("indexes", f"missing or invalid: {', '.join(missing)}", remedy=MIGRATE, level=WARNING)
    return Problem("indexes", f"all {len(wanted)} exist", level=OK)


def sqlite_options(alias: str, models: list[type[StatorModel]]) -> Problem:
    """Check that readers and writers of a SQLite file wait for each other instead of failing."""
    for message in check_sqlite(models, alias):
        return Problem("sqlite", message.msg, remedy=str(message.hint), level=WARNING)
    return Problem("sqlite", "write-ahead log and immediate transactions", level=OK)
