"""Inserts, claims, leases and ends of programs in one statement each, with a row of the program's own records.

For databases where a WITH can write. Such a statement does the usual case only: it does nothing at all where anything
is out of the ordinary, and the caller then does the same with several statements.
"""

import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from operator import itemgetter
from uuid import UUID

from django.db import DatabaseError, IntegrityError
from django.db.models import (
    BooleanField,
    Expression,
    Field,
    FloatField,
    Model,
    Q,
    QuerySet,
    Subquery,
    TextField,
    UUIDField,
)
from django.db.models.expressions import RawSQL
from django.db.models.lookups import IsNull

from stator.db import sql
from stator.db.claims_postgresql import PICKED, PICKED_NEAR, TOKEN, filtered, lock_of
from stator.db.compiler import Compiler
from stator.db.instances import load_all
from stator.db.interface import Batch, Ended, Operations, Written
from stator.db.probe import probes
from stator.db.retry import is_retryable
from stator.db.values import Instance, Params, Row
from stator.rows import columns
from stator.rows.pauses import Pause
from stator.statements import Parameter, Place, Statement, StatementCache, joined, selecting, updating, written

# The name under which statements are given rows to insert.
ROWS = "stator_rows"


@dataclass(frozen=True, slots=True)
class Records:
    """The program's own records of claims: a row for each claim, which ``row`` refers to and which has its ``token``.

    ``copied``: fields of the record by those of the claimed row. ``given``: the values of others.
    """

    model: type[Model]
    row: str
    token: str
    copied: Mapping[str, str]
    given: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a claim's statement is built of.

    ``pick``: narrows and orders the claimable rows, of which ``limit`` are claimed. ``until``: the end of the lease.
    ``odd``: whether a row needs more than this statement; then none is claimed. ``flag``: a condition.
    The claim also returns whether all rows meet it. ``among``: rows in the order of an index with an annotation
    ``sought``, of which ``pick`` may match few. Only their first ones are searched; if these have fewer than ``limit``,
    none is claimed.
    """

    pick: Callable[[QuerySet[Model]], QuerySet[Model]]
    until: Expression
    odd: Q
    flag: Q
    records: Records
    limit: int
    among: Callable[[QuerySet[Model]], QuerySet[Model]] | None = None


_cache: StatementCache[Statement] = StatementCache()
_compiler = lru_cache(maxsize=64)(Compiler)


def claim(
    operations: Operations,
    key: Hashable,
    shape: Callable[[], Shape],
    token: UUID,
    values: Mapping[str, object],
) -> tuple[list[Instance], bool, float]:
    """Claim rows and record the claims; return their instances, in no order, the ``flag``, and when it was sent.

    ``key``: equal for equal shapes. The list is empty if there are no such rows, rows have to be marked ready or leases
    to be ended first, objects of the model are paused, a row is ``odd``, or another claim interferes.
    """
    compiler = _compiler(operations.model, operations.alias)
    statement = _keep(
        operations, (compiler, "claim", sql.FIRST_ROWS, key), lambda: _claim(operations, compiler, shape())
    )
    # After the compiling, which may take longer than a short lease.
    since = time.monotonic()
    try:
        found = _send(operations, statement, sql.IN_ORDER, {**values, TOKEN: token})
    except DatabaseError as error:
        if isinstance(error, IntegrityError) or is_retryable(error):
            return [], False, since
        raise
    cells = [row[:-1] for row in found]
    instances = load_all(compiler.model, operations.connection, compiler.names, cells, compiler.converters)
    return instances, bool(found and found[0][-1]), since


def update(
    operations: Operations,
    key: Hashable,
    build: Callable[[], tuple[QuerySet[Model], Mapping[str, object], tuple[str, ...], Records]],
    values: Mapping[str, object],
) -> list[Row]:
    """Update rows and their records; return the database's time and some columns of each.

    ``build``: returns the rows, the changes, the names of these columns, and the records.
    """
    compiler = _compiler(operations.model, operations.alias)
    statement = _keep(operations, (compiler, "update", key), lambda: _update(compiler, *build()))
    return _send(operations, statement, sql.BY_KEY, values)


def insert(
    operations: Operations,
    key: Hashable,
    condition: Callable[[], QuerySet[Model]],
    rows: Sequence[Mapping[str, object]],
    values: Mapping[str, object],
    later: tuple[str, ...] = (),
) -> list[Instance]:
    """Insert rows and return their instances in order; nothing if a unique value is taken or the condition is not met.

    ``rows``: the values of the same fields, by attribute; others take the defaults of the database. ``condition``:
    returns a queryset of any model that must not be empty. ``values``: those of its parameters. ``later``: fields whose
    values are seconds from the database's time.
    """
    compiler, one = _compiler(operations.model, operations.alias), len(rows) == 1
    shared = tuple(rows[0]) if one else _shared(rows)
    own = tuple(name for name in rows[0] if name not in shared)
    statement = _keep(
        operations, (compiler, "insert", shared, own, later, key),
        lambda: _insert(compiler, shared, own, later, condition()),
    )  # fmt: skip
    given = {ROWS: json.dumps([{name: row[name] for name in own} for row in rows]) if own else "", **rows[0]}
    try:
        with operations.transaction() if not one or operations.connection.in_atomic_block else nullcontext():
            params = statement.bind(operations.connection, {**values, **given})
            found = operations.fetch(statement.text, params, "", often=True)
            if len(found) < len(rows):
                raise _Refused
    except _Refused:
        return []
    except DatabaseError as error:
        if isinstance(error, IntegrityError) or is_retryable(error):
            return []
        raise
    # RETURNING may list rows in another order than that in which they were given their numbers.
    at = compiler.names.index(operations.model._meta.pk.attname)
    found.sort(key=itemgetter(at))
    return _inserted(
        operations, compiler, found, {name: type(rows[0][name]) for name in shared if rows[0][name] in _EMPTY}
    )


def _inserted(
    operations: Operations, compiler: Compiler, found: list[Row], empty: Mapping[str, type]
) -> list[Instance]:
    """Return the instances of inserted rows. ``empty``: fields that are known to be empty, which are not converted."""
    places = {compiler.names.index(name) for name in empty}
    converters = [each for each in compiler.converters if each[0] not in places]
    instances = load_all(compiler.model, operations.connection, compiler.names, found, converters)
    for instance in instances:
        for name, kind in empty.items():
            instance.__dict__[name] = kind()
    return instances


class _Refused(Exception):
    """Raised to roll back an insert of some of the rows."""


# Types of values that are equal for the database if they are for Python, and empty ones.
_PLAIN = {str, int, float, bool, type(None)}
_EMPTY: tuple[object, ...] = ({}, [])


def _shared(rows: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the names of the values that all rows share; they are sent once."""
    return tuple(name for name, value in rows[0].items() if _is_shared(value, [row[name] for row in rows]))


def _is_shared(value: object, values: list[object]) -> bool:
    plain = type(value) in _PLAIN or value in _EMPTY
    # 1, 1.0 and True are equal for Python.
    return plain and values.count(value) == len(values) and len(set(map(type, values))) == 1


def _insert(
    compiler: Compiler,
    shared: tuple[str, ...],
    own: tuple[str, ...],
    later: tuple[str, ...],
    condition: QuerySet[Model],
) -> Statement:
    """Return the INSERT of rows with the ``shared`` values; their ``own`` ones, if there are any, are one JSON text."""
    given = {name: FloatField() if name in later else compiler.of_attribute(name) for name in (*shared, *own)}
    table, returning = compiler.table, compiler.columns
    names = ", ".join(compiler.column_of(compiler.of_attribute(name)) for name in given)
    sent = {name: compiler.value(given[name], Parameter(name, given[name])) for name in shared}
    sent |= {name: Statement(f"given.{compiler.quote(name)}") for name in own}
    values = [
        Statement.of("statement_timestamp() + ", value, " * interval '1 second'") if name in later else value
        for name, value in sent.items()
    ]
    return Statement.of(
        f"INSERT INTO {table} ({names}) SELECT ",
        joined(values, ", "),
        *(_given(compiler, {name: given[name] for name in own}) if own else ()),
        " WHERE EXISTS (",
        selecting(condition.order_by().values("pk")[:1]),
        f"){' ORDER BY given.stator_place' * bool(own)} ON CONFLICT DO NOTHING RETURNING {returning}",
    )


def _given(compiler: Compiler, own: Mapping[str, Field]) -> list[str | Statement]:
    """Return the FROM that reads the rows of a JSON text, with their place in it."""
    columns = ", ".join(compiler.quote(name) for name in own)
    body = ", ".join(f"{compiler.quote(name)} {compiler.cast_of(field)}" for name, field in own.items())
    return [
        " FROM ROWS FROM (json_to_recordset(",
        Statement("%s::json", (Place(ROWS, TextField()),)),
        f") AS ({body})) WITH ORDINALITY AS given ({columns}, stator_place)",
    ]


def _keep(operations: Operations, key: Hashable, make: Callable[[], Statement]) -> Statement:
    """Return the statement of this key, which ``make`` builds the first time, with its constants in its text."""
    # Imported by name: the module needs psycopg, which a project on another database may not have.
    return _cache.get(key, lambda: import_module("stator.db.session").inlined(operations.connection, make()))


def _send(operations: Operations, statement: Statement, planner: str, values: Mapping[str, object]) -> list[Row]:
    params: Params = statement.bind(operations.connection, values)
    # In the transaction of others an error may not break more than this statement.
    with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
        return operations.fetch(statement.text, params, planner, often=True)


def _claim(operations: Operations, compiler: Compiler, shape: Shape) -> Statement:
    rows = operations.claimable(list(operations.graph.automatic_states))
    picked = shape.pick(rows.filter(_nothing_else(operations)))
    picked = picked.annotate(stator_odd=shape.odd, stator_flag=shape.flag).values("pk", "stator_odd", "stator_flag")
    changes = {**columns.claiming_due(Parameter(TOKEN, UUIDField()), shape.until), "state_crashes": 0}
    picking, enough = _picking(compiler, picked, shape, shape.among(rows) if shape.among else None)
    return filtered(
        compiler,
        picking,
        changes,
        only=Statement.of(" AND NOT EXISTS (SELECT FROM picked WHERE stator_odd)", enough),
        further=Statement.of(",\nnoted AS (", _inserting(compiler, shape.records), ")"),
        answer=", (SELECT bool_and(stator_flag) FROM picked)",
    )


def _picking(
    compiler: Compiler, picked: QuerySet[Model, dict[str, object]], shape: Shape, among: QuerySet[Model] | None
) -> tuple[Statement, Statement]:
    """Return the part of a WITH that locks the rows that are ``picked``, and a condition for that to be enough."""
    lock = lock_of(compiler)
    if among is None:
        return written(PICKED, pick=selecting(picked[: shape.limit]), lock=lock), Statement("")
    limit, most = Statement("%s", (shape.limit,)), Statement("%s", (sql.FIRST_ROWS,))
    near = among[: sql.FIRST_ROWS].annotate(stator_place=compiler.place).values("stator_place", "sought")
    at_place = RawSQL(f"{compiler.table}.ctid = near.stator_place", [], output_field=BooleanField())
    pick = selecting(picked.order_by().filter(at_place)[:1])
    enough = written(
        " AND ((SELECT count(*) FROM picked) = {limit} OR (SELECT count(*) FROM near) < {most})", limit=limit, most=most
    )
    return written(PICKED_NEAR, among=selecting(near), pick=pick, lock=lock, limit=limit), enough


def _nothing_else(operations: Operations) -> Q:
    """Return the condition that nothing of the model is paused, has to be marked ready, or has lost its lease."""
    *_, due, expired = probes(operations)
    paused = Pause.objects.using(operations.alias).active().filter(model_label=operations.label)
    return Q(*(IsNull(Subquery(rows.order_by()[:1].values("pk")), True) for rows in (*due, *expired, paused)))


def _inserting(compiler: Compiler, records: Records) -> Statement:
    """Return the INSERT of a record for each row of ``done``."""
    meta, quote = records.model._meta, compiler.quote
    table = quote(meta.db_table)
    names = ", ".join(compiler.column_of(meta.get_field(name)) for name in (*records.copied, *records.given))
    copied = [Statement(quote(compiler.field(name).column)) for name in records.copied.values()]
    given = [compiler.value(meta.get_field(name), value) for name, value in records.given.items()]
    return Statement.of(
        f"INSERT INTO {table} ({names}) SELECT ",
        joined([*copied, *given], ", "),
        " FROM done WHERE state_claim IS NOT NULL",
    )


def _update(
    compiler: Compiler,
    rows: QuerySet[Model],
    changes: Mapping[str, object],
    returned: tuple[str, ...],
    records: Records,
) -> Statement:
    """Return the UPDATE of rows, and of the records that refer to them and have their tokens."""
    pk, names = compiler.pk, ", ".join(compiler.column_of(compiler.field(name)) for name in returned)
    copied = {name: Statement(f"done.{compiler.column_of(compiler.field(of))}") for name, of in records.copied.items()}
    return Statement.of(
        "WITH done AS (",
        updating(rows, changes),
        f" RETURNING {pk} AS pk, state_claim, {names}), noted AS (",
        _noting(compiler, records, copied, Statement("done.state_claim")),
        f") SELECT statement_timestamp(), {names} FROM done",  # noqa: S608 - names
    )


def _noting(compiler: Compiler, records: Records, copied: Mapping[str, Statement], token: Statement) -> Statement:
    """Return the UPDATE of the records that refer to rows of ``done`` and have this token."""
    meta, column_of = records.model._meta, compiler.column_of
    table = compiler.quote(meta.db_table)
    given = {name: compiler.value(meta.get_field(name), value) for name, value in records.given.items()}
    assigned = [
        Statement.of(f"{column_of(meta.get_field(name))} = ", value) for name, value in {**copied, **given}.items()
    ]
    return Statement.of(
        f"UPDATE {table} SET ",  # noqa: S608 - names
        joined(assigned, ", "),
        " FROM done WHERE ",
        _of_done(compiler, records, token),
    )


def _of_done(compiler: Compiler, records: Records, token: Statement) -> Statement:
    """Return the condition of the records that refer to rows of ``done`` and have this token."""
    meta = records.model._meta
    table = compiler.quote(meta.db_table)
    column, key = (compiler.column_of(meta.get_field(name)) for name in (records.row, records.token))
    return Statement.of(f"{table}.{column} = done.pk AND {table}.{key} = ", token)


def end(
    ended: list[Ended],
    records: Records,
    values: Mapping[str, object],
    key: Hashable = None,
    only: Callable[[], QuerySet[Model]] | None = None,
    *,
    forget: bool = False,
) -> Written | None:
    """Write outcomes of one kind and the records of the claims, whose model decides the statement; all, or None.

    ``copied`` of the records: fields of the records by those that the state ``saves``. ``forget``: delete the records.
    ``only``: returns a queryset that must not be empty, equal for equal ``key``; ``values`` are its parameters, too.
    """
    batch = Batch.of(ended)
    operations = batch.operations
    compiler = _compiler(operations.model, operations.alias)
    same = records.model, tuple(records.given), tuple(records.copied.items()), batch.saves, forget
    noted = _keep(operations, (compiler, "end", *same), lambda: _noted(compiler, records, batch.saves, forget=forget))
    condition = None
    if only is not None:
        condition = _keep(operations, (compiler, "only", key), lambda: _existing(only()))
    try:
        with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
            return operations.record_noted(batch, noted, values, condition)
    except DatabaseError as error:
        if is_retryable(error):
            return None
        raise


def _noted(compiler: Compiler, records: Records, saves: tuple[str, ...], *, forget: bool) -> Statement:
    token = Statement("done.claim")
    if forget:
        table = compiler.quote(records.model._meta.db_table)
        return Statement.of(f"DELETE FROM {table} USING done WHERE ", _of_done(compiler, records, token))  # noqa: S608 - names
    copied = {name: Statement(f"done.value{saves.index(of)}") for name, of in records.copied.items()}
    return _noting(compiler, records, copied, token)


def _existing(rows: QuerySet[Model]) -> Statement:
    return Statement.of("EXISTS (", selecting(rows.order_by().values("pk")[:1]), ")")
