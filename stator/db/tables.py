"""What is missing in a table of a model, or does not fit there, and its indexes. Waits for no lock on PostgreSQL."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

from django.core.exceptions import EmptyResultSet, FieldDoesNotExist, FieldError
from django.db import DatabaseError, NotSupportedError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, Q, QuerySet

from stator.capabilities import capabilities_of
from stator.db.retry import is_of_schema
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.dates import wrong_dates
from stator.rows.meta import graph_of, options_of
from stator.rows.spread import spread_field
from stator.scopes import entered, named
from stator.statements import Statement, fetch_all, joined, selecting
from stator.texts import bounded, text_of

# The query reads the catalog: a statement on the table itself would wait while a migration locks it.
COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

# How the extension Citus manages a table. Its catalogs exist only where the extension does.
CITUS_CATALOGS = "SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL"
CITUS = """
SELECT CASE WHEN column_to_column_name(logicalrelid, partkey) = %s THEN 'spread'
  WHEN partmethod <> 'n' THEN 'distributed' WHEN repmodel = 't' THEN 'reference'
  WHEN colocationid IN (SELECT colocationid FROM pg_catalog.pg_dist_schema) THEN 'schema' ELSE 'local' END
FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass(%s)
"""

# Each of these kinds in words, and what makes the table an ordinary one.
_OF_OTHER_ENGINE = 'set ENGINE to "stator.citus"'
_ORDINARY = "move its rows to an ordinary table: undistribute_table() does it unless the table has an identity column"
CITUS_KINDS = {
    "distributed": ("a distributed table of Citus", _ORDINARY),
    "reference": ("a reference table of Citus", _ORDINARY),
    "schema": ("in a distributed schema of Citus", _OF_OTHER_ENGINE),
    "spread": ("a distributed table of Citus", _OF_OTHER_ENGINE),
    "local": ("a local table of Citus", "drop the foreign keys that connect it to reference tables"),
}

# What Django raises for an expression with a name or a value that a model does not have, or that a database lacks. Not
# errors of a connection, which pass.
WRONG = (AttributeError, FieldDoesNotExist, FieldError, LookupError, NotSupportedError, TypeError, ValueError)


def lack_of(model: type[Model], alias: str) -> str:
    """Return what keeps statements about a model from working, and the remedy, as one line; "" if they work.

    That is something about its table, or a parent's, or an expression in its code.
    """
    parts = (_lack_of(part, alias) for part in (model, *model._meta.get_parent_list()))
    return next(filter(None, parts), "") or wrong_expression(model, alias)


def probe_columns(models: Iterable[type[Model]], alias: str) -> None:
    """Raise ``DatabaseError`` if a table lacks a column of its model; one statement, which reads no row."""
    if probed := tuple(models):
        statement = _probing(probed, alias)
        fetch_all(connections[alias], statement.text, statement.params)


@lru_cache(maxsize=64)
def _probing(models: tuple[type[Model], ...], alias: str) -> Statement:
    each = []
    for model in models:
        rows: QuerySet[Model] = QuerySet(model, using=alias).none().order_by()
        columns = selecting(rows.values_list(*(field.attname for field in model._meta.concrete_fields)))
        each.append(Statement.of("EXISTS (", columns, ")"))
    return Statement.of("SELECT ", joined(each, ", "))


@lru_cache(maxsize=1024)
def wrong_expression(model: type[Model], alias: str) -> str:
    """Return which condition of the graph, or option of ``StatorMeta``, no statement can have, and the remedy."""
    return next(wrong_expressions(model, alias), "") if hasattr(model, "state_graph") else ""


def wrong_expressions(model: type[Model], alias: str, *, compiled: bool = True) -> Iterator[str]:
    """Yield what is wrong with each expression of a managed model, as one line with the remedy.

    Without ``compiled`` only names are looked up, which needs no database.
    """
    rows: QuerySet[Model] = QuerySet(model, using=alias)
    graph, then = graph_of(model), options_of(model).then
    yield from (f"{wrong}; correct it, or the model is left out" for wrong in wrong_dates(model))
    named: list[tuple[str, Callable[[], QuerySet[Model]]]] = [
        (f"{graph.__name__}.{state.name}.when({condition})", partial(rows.filter, condition))
        for state in graph.states.values() for condition, _ in state.conditions if isinstance(condition, Q)
    ]  # fmt: skip
    named += [] if then is None else [(f"{model.__name__}.StatorMeta.then", partial(rows.annotate, stator_then=then))]
    for name, query in named:
        try:
            made = query()
            if compiled:
                made.query.get_compiler(alias).as_sql()
        except EmptyResultSet:
            continue
        except WRONG as error:
            yield f"{bounded(name, 200)}: {bounded(text_of(error), 300)}; correct it, or the model is left out"


def _lack_of(model: type[Model], alias: str) -> str:
    connection, table = connections[alias], model._meta.db_table
    there = columns_of(connection, table)
    if not there:
        return f"{named(alias)} has no table {table} of {model._meta.label}; run manage.py migrate"
    wanted = {str(field.column): field.name for field in model._meta.local_concrete_fields}
    missing = sorted(column for column in wanted if _folded(connection, column) not in there)
    if not missing:
        return _of_citus(connection, model)
    # A model that was given the mixin may have no migration yet.
    ours = {*FRAMEWORK_COLUMNS, getattr(getattr(model, "_state_field", None), "name", None)}
    is_ours = any(wanted[column] in ours for column in missing)
    remedy = "run manage.py makemigrations and migrate" if is_ours else "run manage.py migrate"
    lacks = f"lacks column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return f"table {table} of {model._meta.label} in {named(alias)} {lacks}; {remedy}"


def _of_citus(connection: BaseDatabaseWrapper, model: type[Model]) -> str:
    """Return that Citus manages a table, so that its rows cannot be claimed, and the remedy; "" if it does not."""
    if connection.vendor != "postgresql":
        return ""
    table = model._meta.db_table
    [(has_citus,)] = fetch_all(connection, CITUS_CATALOGS)
    if not has_citus:
        return ""
    spread = spread_field(model) if hasattr(model, "state_graph") else None
    kept = fetch_all(connection, CITUS, [spread.column if spread else None, connection.ops.quote_name(table)])
    if not kept or (kept[0][0] in ("schema", "spread") and capabilities_of(connection).name == "citus"):
        return ""
    kind, remedy = CITUS_KINDS[kept[0][0]]
    where = f"table {table} of {model._meta.label} in {named(connection.alias)}"
    return f"{where} is {kind}, which refuses to claim its rows; {remedy}"


def columns_of(connection: BaseDatabaseWrapper, table: str) -> set[str]:
    """Return the names of a table's columns; an empty set if there is no such table."""
    name = connection.ops.quote_name(table)
    if connection.vendor == "postgresql":
        return {column for (column,) in fetch_all(connection, COLUMNS, [name])}
    with connection.cursor() as cursor:
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
    if not (query := capabilities_of(connection).index_query):
        return None
    params = None
    if schema := entered():
        query, params = f"{query} AND relnamespace = to_regnamespace(%s)", [connection.ops.quote_name(schema)]
    return {name for (name,) in fetch_all(connection, query, params)}
