"""Tables that Citus has distributed over its nodes: which they are."""

from time import monotonic

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model

from stator.capabilities import capabilities_of
from stator.rows.meta import field_of, model_named, options_of, owner_of
from stator.rows.spread import is_in_one_line, spread_field
from stator.scopes import TABLES

# Seconds until a table that was not distributed is looked up again.
LOOKED_UP = 60.0

DISTRIBUTED = "SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass(%s) AND partmethod <> 'n'"


def apart_by(model: type[Model], using: str) -> str:
    """Return the name of the field by whose values rows of a managed model are on several nodes, "" if on one.

    Rows in no common line may be on several.
    """
    spread, connection = spread_field(model), connections[using]
    if spread is None or not capabilities_of(connection).has_nodes:
        return ""
    return spread.name if not is_in_one_line(spread) or is_distributed(model, connection) else ""


def is_distributed(model: type[Model], connection: BaseDatabaseWrapper) -> bool:
    """Return whether Citus has distributed the table of a model by a column; the answer is kept, "no" for a minute."""
    if not capabilities_of(connection).has_nodes:
        return False
    table = connection.ops.quote_name(model._meta.db_table)
    known: dict[str, tuple[bool, float]] = vars(connection).setdefault("stator_distributed", {})
    answer, since = known.get(table, (False, -LOOKED_UP))
    if not answer and monotonic() - since >= LOOKED_UP:
        answer = is_now_distributed(table, connection)
        known[table] = answer, monotonic()
    return answer


def is_now_distributed(table: str, connection: BaseDatabaseWrapper) -> bool:
    """Return whether Citus has distributed a quoted table by a column."""
    with connection.cursor() as cursor:
        # An ordinary server may be tested with the statements for Citus.
        cursor.execute("SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return False
        cursor.execute(DISTRIBUTED, [table])
        return cursor.fetchone() is not None


def columns_of_slices() -> dict[str, Field]:
    """Return the columns of ``spread`` of tables that are beside each other, by table."""
    return {
        each._meta.db_table: field_of(each, str(options_of(model).spread))
        for model in apps.get_models()
        if (beside := options_of(model).beside) and owner_of(model) is model
        for each in (model, *map(model_named, beside))
    }


def connect() -> None:
    """Let them say which tables are divided."""
    TABLES.apart_by = apart_by
