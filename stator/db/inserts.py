"""Inserts of programs in one statement, for databases that read rows from JSON.

The statement inserts nothing if its condition is not met; the caller then inserts the rows with several statements.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import NamedTuple

from django.db import DatabaseError, IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, FloatField, Model, QuerySet

from stator.db.compiler import Compiler, compiler_of
from stator.db.instances import Columns, load_all
from stator.db.interface import Operations
from stator.db.kept_statements import keep, sessions
from stator.db.retry import is_retryable
from stator.db.values import Instance, Params, Row
from stator.statements import JsonText, Parameter, Statement, existing, joined, written

INSERT = """
INSERT INTO {table} ({columns})
SELECT {values}{given}
WHERE {condition}{in_order}
ON CONFLICT DO NOTHING
RETURNING {returning}
"""
# Rows of different values come as one JSON text.
GIVEN = """
FROM ROWS FROM (json_to_recordset(%(stator_rows)s::json) AS ({body}))
 WITH ORDINALITY AS given ({columns}, stator_place)"""
IN_ORDER = " ORDER BY given.stator_place"
ROWS = "stator_rows"

DUE = "state_next_attempt"
LATER = "statement_timestamp() + {seconds} * interval '1 second'"
IS_DUE = "COALESCE({due} <= statement_timestamp(), true)"

# Values that need no conversion from what the database returns.
EMPTY: tuple[object, ...] = ({}, [])


class Insertion(NamedTuple):
    """Rows to insert with one statement, which is compiled once for each ``key``.

    ``condition`` returns a queryset that must not be empty, and ``values`` are for its parameters.
    ``common``: values by attribute that all rows have.
    ``rows``: for each row the values of further fields, the same fields in all rows. Fields without a value take the
    database's defaults; a row is ready if its ``state_next_attempt`` has come.
    ``fixed``: the names of common values that rarely change, which become part of the text.
    ``later``: ``state_next_attempt`` is given in seconds from the database's time.
    ``returning``: return these columns, among them the key, in place of instances.
    ``unique``: False if no value can be taken, which saves a savepoint.
    """

    key: Hashable
    condition: Callable[[], QuerySet[Model]]
    values: Mapping[str, object]
    common: Mapping[str, object]
    rows: Sequence[Mapping[str, object]]
    fixed: tuple[str, ...] = ()
    later: bool = False
    returning: tuple[str, ...] = ()
    unique: bool = True


def insert(operations: Operations, new: Insertion, connection: BaseDatabaseWrapper) -> list[Instance] | list[Row]:
    """Insert rows by a connection, and return them in order.

    Return nothing if a unique value is taken or the condition is not met.
    """
    common, rows, returning = new.common, new.rows, new.returning
    compiler = compiler_of(operations.model, operations.alias)
    own, text = tuple(rows[0]), _in_text(common, new.fixed)
    shape = compiler, "insert", tuple(common), repr(text), own, new.later, returning, new.key
    statement = keep(operations, shape, lambda: _insert(compiler, new, text, own))
    given = {**new.values, **common, ROWS: _json_of(rows) if own else ""}
    # Without unique values, either all rows are inserted or none.
    savepoint = new.unique and (len(rows) > 1 or connection.in_atomic_block)
    try:
        with operations.transaction() if savepoint else nullcontext():
            inserted = _send(operations, connection, statement.text, statement.bind(connection, given), returning)
            if len(inserted) < len(rows):
                raise _Refused
    except _Refused:
        return []
    except DatabaseError as error:
        is_broken = connection.in_atomic_block and not savepoint
        if not is_broken and (isinstance(error, IntegrityError) or is_retryable(error)):
            return []
        raise
    # RETURNING may list rows in another order than the order of their numbers.
    names = [*returning] or compiler.names
    inserted.sort(key=itemgetter(names.index(operations.model._meta.pk.attname)))
    return inserted if returning else _instances(operations, compiler, inserted, common)


class _Refused(Exception):
    """Raised to roll back an insert of some of the rows."""


def _send(
    operations: Operations, connection: BaseDatabaseWrapper, text: str, params: Params, returning: tuple[str, ...]
) -> list[Row]:
    if not returning:
        # Instances have many moments, which Django's cursor converts slowly.
        return operations.fetch(text, params, "", often=True)
    rows: list[Row] = sessions().send_in_passing(connection, text, params)
    return rows


def _in_text(common: Mapping[str, object], fixed: tuple[str, ...]) -> dict[str, object]:
    """Return the common values that are part of the statement's text, because they rarely change."""
    return {
        name: value
        for name, value in common.items()
        if name in fixed or value is None or value in EMPTY or type(value) is bool
    }


def _json_of(rows: Sequence[Mapping[str, object]]) -> str:
    if not any(type(value) is JsonText for value in rows[0].values()):
        return json.dumps(rows)
    names = {name: json.dumps(name) for name in rows[0]}
    texts = [
        [f"{names[name]}:{value if type(value) is JsonText else json.dumps(value)}" for name, value in row.items()]
        for row in rows
    ]
    return f"[{','.join(['{' + ','.join(each) + '}' for each in texts])}]"


def _instances(
    operations: Operations, compiler: Compiler, inserted: list[Row], common: Mapping[str, object]
) -> list[Instance]:
    """Return the instances of inserted rows. Common values that are empty are not converted."""
    empty = {name: type(value) for name, value in common.items() if value in EMPTY}
    places = {compiler.names.index(name) for name in empty}
    converters = [each for each in compiler.converters if each[0] not in places]
    columns = Columns.of(compiler.fields, converters)
    instances = load_all(compiler.model, operations.connection, columns, inserted)
    for instance in instances:
        for name, kind in empty.items():
            instance.__dict__[name] = kind()
    return instances


def _insert(compiler: Compiler, new: Insertion, text: Mapping[str, object], own: tuple[str, ...]) -> Statement:
    """Return the INSERT of rows with their common values; their ``own`` ones, if there are any, are one JSON text."""
    common, later = tuple(new.common), new.later
    fields = {name: compiler.of_attribute(name) for name in (*common, *own)}
    given = {**fields, DUE: FloatField()} if later else fields
    values = {
        name: compiler.value(field, _prepared(compiler, field, text[name]) if name in text else Parameter(name, field))
        for name, field in given.items()
        if name in common
    }
    values |= {name: Statement(f"given.{compiler.quote(name)}") for name in own}
    columns = [compiler.column_of(field) for field in fields.values()]
    if DUE in values:
        if later:
            values[DUE] = written(LATER, seconds=values[DUE])
        columns.append(compiler.column_of(compiler.field("state_ready")))
        values["state_ready"] = written(IS_DUE, due=values[DUE])
    named = {name: given[name] for name in own}
    return written(
        INSERT,
        table=compiler.table,
        columns=", ".join(columns),
        values=joined(list(values.values()), ", "),
        given=_given(compiler, named) if own else "",
        condition=existing(new.condition()),
        in_order=IN_ORDER if own else "",
        returning=", ".join(compiler.column_of(compiler.field(name)) for name in new.returning) or compiler.columns,
    )


def _prepared(compiler: Compiler, field: Field, value: object) -> object:
    return field.get_db_prep_save(value, compiler.connection)


def _given(compiler: Compiler, own: Mapping[str, Field]) -> Statement:
    """Return the FROM that reads the rows of a JSON text, with their place in it."""
    names = {compiler.quote(name): compiler.cast_of(field) for name, field in own.items()}
    body = ", ".join(f"{name} {kind}" for name, kind in names.items())
    return written(GIVEN, body=body, columns=", ".join(names))
