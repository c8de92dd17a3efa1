"""Generated columns for databases without indexes on expressions and without unique constraints with conditions.

MariaDB has neither, and MySQL has no such constraints. So after each ``migrate`` the tables of managed models get what
their models declare in this form:

- for each expression of an index, a column that is computed from it, and the index over these columns;
- for each unique constraint with a condition, a column and a unique index that ends with this column. The column has
  the value of the constraint's last field where the condition holds, and is null elsewhere: unique indexes take any
  number of nulls.

No field of a model belongs to these columns; they are invisible to ``SELECT *``, and the server keeps them up to date.
A column cannot be dropped while a generated column is computed from it. So migrations that change columns begin by
dropping the generated columns.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from django.apps import AppConfig
from django.apps.registry import Apps
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import AddField, AlterField, Migration, RemoveField, RenameField
from django.db.models import DateTimeField, Field, Index, Model, Q, QuerySet, UniqueConstraint
from django.db.models.expressions import BaseExpression, OrderBy, RawSQL
from django.db.models.signals import post_migrate, pre_migrate
from django.db.models.sql import Query

from stator.capabilities import capabilities_of
from stator.db.values import Params
from stator.statements import fetch_all

PRESENT = """
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s
"""
# The columns that were added here, by their comment.
OURS = f"{PRESENT.rstrip()} AND column_comment = 'stator'"
INDEXES_OF_OURS = """
SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND column_name IN %s
"""
UNIQUE_OF_OURS = f"{INDEXES_OF_OURS.rstrip()} AND non_unique = 0"
INDEXED = """
SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = %s
"""
# The column of an expression is null.
COLUMNS_OF_INDEXES = """
SELECT index_name, column_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s ORDER BY index_name, seq_in_index
"""
# The attribute of the driver's connection that keeps the columns of tables.
COLUMNS = "stator_columns"
# The column is stored, because the server may have to compute a virtual one when it no longer has the row. A server
# that has invisible columns reads the comment for MySQL or the comment for MariaDB as a part of the statement.
COLUMN = (
    "ADD COLUMN {name} {type} GENERATED ALWAYS AS ({value}) STORED"
    " /*!80023 INVISIBLE *//*M!100303 INVISIBLE */ COMMENT 'stator'"
)
# MySQL computes generated columns before and after it has filled in the defaults of other columns, and refuses the zero
# date that they have until then.
MOMENT = "/*!80013 CASE WHEN {value} > TIMESTAMP'1000-01-01 00:00:00' THEN */ {value} /*!80013 END */"

# Migrations, each with whether it is undone.
Plan = Sequence[tuple[Migration, bool]]


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated column: its name, its type and the SQL of its value."""

    name: str
    type: str
    value: str

    def definition(self, connection: BaseDatabaseWrapper) -> str:
        """Return the part of an ALTER TABLE that adds it."""
        return COLUMN.format(name=connection.ops.quote_name(self.name), type=self.type, value=self.value)


def connect() -> None:
    """Complete the tables of an app after its migrations, and let go of columns that these change."""
    pre_migrate.connect(_release_app, dispatch_uid="stator.generated")
    post_migrate.connect(_complete_app, dispatch_uid="stator.generated")


def complete(model: type[Model], alias: str) -> list[str]:
    """Add the missing generated columns and indexes of a managed model; return the statements that did it."""
    connection = connections[alias]
    if not capabilities_of(connection).needs_generated_columns or not hasattr(model, "state_graph"):
        return []
    table = model._meta.db_table
    columns, indexes = (_names(connection, statement, [table]) for statement in (PRESENT, INDEXED))
    if not {field.column for field in model._meta.local_concrete_fields} <= columns:
        # The table is at an earlier migration, or belongs to another program.
        return []
    ours = _names(connection, OURS, [table])
    superseded = _superseded(model, connection)
    parts = list(_without(model, connection, superseded, indexes))
    parts += _missing(model, connection, columns, indexes - superseded)
    if ours <= {column.name for column, _ in _wanted(model, connection)}:
        return _alter(connection, table, parts)
    done = release(connection, table)
    return [*done, *complete(model, alias)]


def release(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """Drop the generated columns of a table and their indexes; return the statements that did it."""
    quote = connection.ops.quote_name
    columns = sorted(_names(connection, OURS, [table]))
    # Remains of other indexes stay where Django, which knows those indexes, may have to drop them.
    statement = UNIQUE_OF_OURS if connection.features.supports_expression_indexes else INDEXES_OF_OURS
    indexes = sorted(_names(connection, statement, [table, columns])) if columns else []
    parts = [f"DROP INDEX {name}" for name in map(quote, indexes)]
    parts += [f"DROP COLUMN {name}" for name in map(quote, columns)]
    return _alter(connection, table, parts)


def _alter(connection: BaseDatabaseWrapper, table: str, parts: list[str]) -> list[str]:
    if not parts:
        return []
    statement = f"ALTER TABLE {connection.ops.quote_name(table)} {', '.join(parts)}"
    with connection.cursor() as cursor:
        cursor.execute(statement)
    return [statement]


def in_columns(rows: QuerySet[Model], present: set[str]) -> QuerySet[Model]:
    """Return rows ordered by generated columns in place of their expressions, as far as these columns are present."""
    connection = connections[rows.db]
    names = _names_by_expression(rows.model, rows.db)
    by_expression = {expression: name for expression, name in names.items() if name in present}
    table = connection.ops.quote_name(rows.model._meta.db_table)
    order = [
        RawSQL(f"{table}.{connection.ops.quote_name(by_expression[each])}", ()) if each in by_expression else each
        for each in rows.query.order_by
    ]
    return rows.order_by(*order)


def present_columns(model: type[Model], alias: str) -> set[str]:
    """Return the names of the columns that a table has, as they were when this session found the wanted ones there."""
    connection, table = connections[alias], model._meta.db_table
    connection.ensure_connection()
    known: dict[str, set[str]] = connection.connection.__dict__.setdefault(COLUMNS, {})
    if not known.get(table, set()).issuperset(_names_by_expression(model, alias).values()):
        known[table] = _names(connection, PRESENT, [table])
    return known.get(table, set())


def forget_columns(model: type[Model], alias: str) -> None:
    """Have this session ask again which columns a table has."""
    connections[alias].connection.__dict__.get(COLUMNS, {}).pop(model._meta.db_table, None)


@cache
def _names_by_expression(model: type[Model], alias: str) -> dict[object, str]:
    return {expression: column.name for expression, column in _by_expression(model, connections[alias]).items()}


def _complete_app(app_config: AppConfig, using: str, **options: object) -> None:
    for model in app_config.get_models():
        if router.allow_migrate_model(using, model) and model._meta.managed and not model._meta.proxy:
            complete(model, using)


def _release_app(
    app_config: AppConfig, using: str, plan: Plan = (), apps: Apps | None = None, **options: object
) -> None:
    connection, label = connections[using], app_config.label
    if not capabilities_of(connection).needs_generated_columns or apps is None:
        return
    changing = any(each.app_label == label and _changes_columns(each) for each, _ in plan)
    if changing and label in apps.app_configs:
        for model in apps.get_app_config(label).get_models():
            release(connection, model._meta.db_table)


def _changes_columns(migration: Migration) -> bool:
    # A table in use is altered by an operation that has others.
    operations = [each for one in migration.operations for each in (one, *getattr(one, "operations", ()))]
    return any(isinstance(each, AddField | AlterField | RemoveField | RenameField) for each in operations)


def _names(connection: BaseDatabaseWrapper, statement: str, params: Params) -> set[str]:
    return {name for (name,) in fetch_all(connection, statement, params)}


def _superseded(model: type[Model], connection: BaseDatabaseWrapper) -> set[str]:
    """Return the names of indexes that have other columns than the model declares now.

    Django's own changes of them are none on a database without indexes on expressions. MySQL has such indexes, so
    Django creates them; a sort by a generated column does not use them.
    """
    present: dict[str, list[str]] = defaultdict(list)
    for name, column in fetch_all(connection, COLUMNS_OF_INDEXES, [model._meta.db_table]):
        present[name].append(column)
    wanted = _wanted_indexes(model, connection).items()
    return {name for (kind, name), named in wanted if kind == "INDEX" and present.get(name, named) != named}


def _without(
    model: type[Model], connection: BaseDatabaseWrapper, superseded: set[str], indexes: set[str]
) -> Iterator[str]:
    """Yield the parts of the ALTER TABLE that drop superseded indexes.

    If such an index begins with a foreign key, it has replaced the index that the key must have.
    """
    quote, fields = connection.ops.quote_name, _fields(model)
    yield from (f"DROP INDEX {name}" for name in map(quote, sorted(superseded)))
    for index in _with_expressions(model):
        first, own = fields.get(getattr(index.expressions[0], "name", "")), f"{index.name}_key"
        if index.name in superseded and first and first.is_relation and own not in indexes:
            name, column = quote(own), quote(str(first.column))
            yield f"ADD INDEX {name} ({column})"


def _missing(
    model: type[Model], connection: BaseDatabaseWrapper, columns: set[str], indexes: set[str]
) -> Iterator[str]:
    """Yield the parts of the ALTER TABLE: the columns first."""
    quote, wanted = connection.ops.quote_name, _wanted(model, connection)
    yield from (column.definition(connection) for column, _ in wanted if column.name not in columns)
    for (kind, name), named in _wanted_indexes(model, connection).items():
        if name not in indexes:
            yield f"ADD {kind} {quote(name)} ({', '.join(map(quote, named))})"


def _wanted(model: type[Model], connection: BaseDatabaseWrapper) -> list[tuple[Generated, str]]:
    """Return the generated columns that a model needs, each with the constraint that it is for, or ""."""
    fields = _fields(model)
    wanted = [(column, "") for column in _by_expression(model, connection).values()]
    for constraint, condition in _with_conditions(model):
        last = fields[constraint.fields[-1]]
        value = f"CASE WHEN {_sql(model, connection, condition)} THEN {connection.ops.quote_name(str(last.column))} END"
        column = Generated(f"{constraint.name}_if"[:64], str(last.rel_db_type(connection)), value)
        wanted.append((column, constraint.name))
    return wanted


def _wanted_indexes(model: type[Model], connection: BaseDatabaseWrapper) -> dict[tuple[str, str], list[str]]:
    """Return the columns of the indexes over generated columns, by their kind and name."""
    fields, by_expression = _fields(model), _by_expression(model, connection)
    indexes = {}
    for index in _with_expressions(model):
        first = ["state_ready"] if ("state_ready", True) in getattr(index.condition, "children", ()) else []
        named = [*first, *(_column_of(fields, each, by_expression) for each in index.expressions)]
        indexes["INDEX", index.name] = named
    columns = {name: column.name for column, name in _wanted(model, connection) if name}
    for constraint, _ in _with_conditions(model):
        others = [str(fields[name].column) for name in constraint.fields[:-1]]
        indexes["UNIQUE INDEX", constraint.name] = [*others, columns[constraint.name]]
    return indexes


def _by_expression(model: type[Model], connection: BaseDatabaseWrapper) -> dict[object, Generated]:
    """Return the generated column of each expression that an index of a model has."""
    every = [
        each for index in _with_expressions(model) for each in index.expressions if isinstance(each, BaseExpression)
    ]
    return {expression: _generated(model, connection, expression) for expression in every}


def _generated(model: type[Model], connection: BaseDatabaseWrapper, expression: BaseExpression) -> Generated:
    query = Query(model, alias_cols=False)
    resolved = expression.resolve_expression(query, allow_joins=False)
    value = _sql(model, connection, expression)
    name = f"st_{hashlib.sha256(value.encode()).hexdigest()[:12]}"
    if isinstance(resolved.output_field, DateTimeField):
        value = MOMENT.format(value=value)
    return Generated(name, str(resolved.output_field.rel_db_type(connection)), value)


def _fields(model: type[Model]) -> dict[str, Field]:
    return {field.name: field for field in model._meta.local_concrete_fields}


def _column_of(fields: dict[str, Field], expression: object, by_expression: dict[object, Generated]) -> str:
    column = by_expression.get(expression)
    return column.name if column else str(fields[getattr(expression, "name", "")].column)


def _with_expressions(model: type[Model]) -> list[Index]:
    return [index for index in model._meta.indexes if index.contains_expressions and not _is_ordered(index)]


def _is_ordered(index: Index) -> bool:
    return any(isinstance(each, OrderBy) for each in index.expressions)


def _with_conditions(model: type[Model]) -> Iterator[tuple[UniqueConstraint, Q]]:
    for each in model._meta.constraints:
        if isinstance(each, UniqueConstraint) and each.condition is not None and each.fields:
            yield each, each.condition


def _sql(model: type[Model], connection: BaseDatabaseWrapper, part: Q | BaseExpression) -> str:
    """Return the SQL of an expression or a condition, with its values in it."""
    query = Query(model, alias_cols=False)
    resolved = query.build_where(part) if isinstance(part, Q) else part.resolve_expression(query, allow_joins=False)
    sql, params = query.get_compiler(connection=connection).compile(resolved)
    with connection.schema_editor(collect_sql=True) as editor:
        return str(sql % tuple(map(editor.quote_value, params)))
