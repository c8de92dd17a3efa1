"""Checks of a database's tables, columns, indexes, triggers and options, and for rows in unknown states."""

from django.db import connections

from stator.capabilities import capabilities_of
from stator.checks.databases import check_rows, check_sqlite
from stator.commands.doctor.finding import FAIL, OK, WARN, Finding
from stator.db.schema import index_names
from stator.models import StatorModel
from stator.rows.indexes import own_indexes
from stator.rows.versions import Fleet, listed
from stator.strict_fence import TRIGGER
from stator.worker.startup import Unusable, lacks_in

MIGRATE = "run manage.py makemigrations and migrate"

# The tables whose trigger of this name is disabled.
DISABLED = """
SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE tgname = %s AND tgenabled = 'D' AND relname = ANY(%s) ORDER BY relname
"""


def usable(alias: str, models: list[type[StatorModel]]) -> tuple[Finding, list[type[StatorModel]]]:
    """Check that the database is a reachable primary with all tables; also return the models with complete tables."""
    try:
        lacking = lacks_in(models, alias)
    except Unusable as error:
        message, _, remedy = str(error).rpartition("; ")
        return Finding("database", alias, FAIL, message, remedy), []
    if lacking:
        # There are few kinds of remedies; the longest includes making migrations.
        messages, remedies = zip(*(lack.split("; ") for lack in lacking.values()), strict=True)
        finding = Finding("database", alias, FAIL, "; ".join(messages), max(remedies, key=len))
    else:
        finding = Finding("database", alias, OK, "reachable and writable, with all tables and columns")
    return finding, [model for model in models if model not in lacking]


def indexes(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that every model has the indexes that the workers' statements need."""
    connection = connections[alias]
    present = index_names(connection)
    if present is None:
        return Finding("indexes", alias, OK, f"not checked on {capabilities_of(connection).name}")
    # An index on expressions is not missing on a database that supports none, nor columns in their place.
    has_all = connection.features.supports_expression_indexes or capabilities_of(connection).needs_generated_columns
    each = (index for model in models for index in own_indexes(model))
    wanted = [index.name for index in each if has_all or not index.contains_expressions]
    if missing := [name for name in wanted if name not in present]:
        return Finding("indexes", alias, WARN, f"missing or invalid: {', '.join(missing)}", MIGRATE)
    return Finding("indexes", alias, OK, f"all {len(wanted)} exist")


def unknown_states(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check for rows in states that neither the code here nor a live worker has."""
    if not list(check_rows(models, alias)):
        return Finding("states", alias, OK, "all states of rows are known")
    fleet = Fleet.of(alias)
    knowing = {model._meta.label_lower: fleet.knowing(model) for model in models}
    if found := list(check_rows(models, alias, elsewhere=knowing)):
        return Finding("states", alias, WARN, " ".join(message.msg for message in found), str(found[0].hint))
    workers = sorted({name for states in knowing.values() for names in states.values() for name in names})
    return Finding("states", alias, OK, f"states that this process does not know are known to {listed(workers)}")


def triggers(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that no trigger of ``StrictFence`` is disabled."""
    with connections[alias].cursor() as cursor:
        cursor.execute(DISABLED, [TRIGGER, [model._meta.db_table for model in models]])
        off = [name for (name,) in cursor.fetchall()]
    if off:
        message = f"{TRIGGER} is disabled on {', '.join(off)}, so raw writes may revive ended claims"
        return Finding("triggers", alias, WARN, message, "ALTER TABLE ... ENABLE TRIGGER stator_strict_fence")
    return Finding("triggers", alias, OK, "no trigger is disabled")


def sqlite_options(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that readers and writers of a SQLite file wait for each other instead of failing."""
    for message in check_sqlite(models):
        return Finding("sqlite", alias, WARN, message.msg, str(message.hint))
    return Finding("sqlite", alias, OK, "write-ahead log and immediate transactions")
