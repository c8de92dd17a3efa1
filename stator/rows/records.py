"""Rows beside the rows, of one object each: what all their tables have in common."""

from collections.abc import Mapping
from typing import TypeVar

from django.db import connections
from django.db.models import NOT_PROVIDED, Model, QuerySet, Value

from stator.rows.meta import owner_of
from stator.statements import Statement, selecting, written

REASON_LENGTH = 500

Record = TypeVar("Record", bound=Model)

# The rows are read and written by the server alone.
COPY = "INSERT INTO {table} ({columns}) {rows}"


def records_of(kind: type[Record], model: type[Model], pk: object, using: str) -> QuerySet[Record]:
    """Return the rows of one kind, such as ``History``, about one object of a managed model or of a child of it."""
    label = owner_of(model)._meta.label_lower
    return QuerySet(kind, using=using).filter(model_label=label, object_pk=str(pk))


def inserting(rows: QuerySet[Model], into: type[Model], values: Mapping[str, object]) -> Statement:
    """Return the INSERT of one row into another table for each of these rows.

    ``values``: expressions for its columns. Other columns get the default of their field.
    """
    fields = [field for field in into._meta.concrete_fields if not field.primary_key]
    # The database's own default would be in UTC, whatever the zone of the column is.
    defaults = {
        field.name: Value(field.get_default(), output_field=field)
        if field.db_default is NOT_PROVIDED
        else field.db_default
        for field in fields
        if field.name not in values
    }
    named = {f"stator_{name}": value for name, value in {**defaults, **values}.items()}
    quote, columns = connections[str(rows.db)].ops.quote_name, {f"stator_{one.name}": str(one.column) for one in fields}
    return written(
        COPY,
        table=quote(into._meta.db_table),
        columns=", ".join(quote(columns[name]) for name in named),
        rows=selecting(rows.order_by().annotate(**named).values_list(*named)),
    )


def send(statement: Statement, using: str, values: Mapping[str, object]) -> None:
    """Send a statement that returns nothing."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(statement.text, statement.bind(connection, values))


def conflict_target(using: str, *names: str) -> list[str] | None:
    """Return the ``unique_fields`` for a ``bulk_create`` that updates existing rows; MySQL takes none."""
    return list(names) if connections[using].features.supports_update_conflicts_with_target else None
