"""Claims, leases and ends of programs in one statement each, with a row of the program's own records.

For databases where a WITH can write. Such a statement handles the usual case only. In any other case it does nothing,
and the caller sends several statements instead.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple
from uuid import UUID

from django.db import DatabaseError, IntegrityError
from django.db.models import (
    BooleanField,
    Expression,
    Field,
    Model,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    UUIDField,
)
from django.db.models.expressions import RawSQL
from django.db.models.lookups import IsNull

from stator.db import sql
from stator.db.claims_postgresql import PICKED, PICKED_NEAR, TOKEN, filtered, lock_of
from stator.db.compiler import Compiler, compiler_of
from stator.db.effects import Act, Effect, Part, Store
from stator.db.instances import load_all
from stator.db.interface import Claim, Ended, Operations, OutcomeBatch, Written
from stator.db.probe import probes
from stator.db.retry import is_retryable
from stator.db.saved_fields import value_names
from stator.db.values import Instance, Params, Pk, Row
from stator.rows import columns
from stator.rows.clock import Now
from stator.statements import (
    PROGRAM,
    Parameter,
    Statement,
    StatementCache,
    existing,
    joined,
    selecting,
    updating,
    written,
)


@dataclass(frozen=True, slots=True)
class ProgramRecords:
    """What becomes of the program's own records of claims.

    A program has a row of ``model`` for each claim, which ``row`` refers to and which has the claim's ``token``.

    ``copied``: maps fields of the record to fields of the claimed row. ``given``: values of the record's other fields.
    ``forget``: the records of claims that end are deleted.
    """

    model: type[Model]
    row: str
    token: str
    copied: Mapping[str, str]
    given: Mapping[str, object]
    forget: bool = False

    def write(self, operations: Operations, tokens: Mapping[Pk, UUID]) -> None:
        """Change or delete the records of claims, by the keys of their rows, in statements of their own."""
        rows = operations.rows
        copied = {name: Subquery(rows.filter(pk=OuterRef(self.row)).values(of)[:1]) for name, of in self.copied.items()}
        for token in set(tokens.values()):
            pks = [pk for pk, each in tokens.items() if each == token]
            records: QuerySet[Model] = QuerySet(self.model, using=rows.db)
            mine = operations.division.only_mine(records).filter(**{f"{self.row}__in": pks, self.token: token})
            if self.forget:
                mine.delete()
            else:
                mine.update(**self.given, **copied)

    @property
    def values(self) -> dict[str, object]:
        """The given values, without expressions, by the names that they have in a statement."""
        given = self.given.items()
        return {PROGRAM + name: value for name, value in given if not hasattr(value, "resolve_expression")}


class Only(NamedTuple):
    """A condition on the row of a claim that ends; ``key`` is equal for equal conditions."""

    key: Hashable
    build: Callable[[], Q]


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a claim's statement.

    ``pick``: narrows and orders the claimable rows; ``limit`` of them are claimed.
    ``until``: the end of the lease.
    ``odd``: whether a row needs more than this statement; then none is claimed.
    ``flag``: a condition; the claim also returns whether all rows meet it.
    ``among``: rows in the order of an index with an annotation ``sought``, for a ``pick`` that may match few of them.
    Only the first rows of ``among`` are searched; if fewer than ``limit`` of them match, none is claimed.
    """

    pick: Callable[[QuerySet[Model]], QuerySet[Model]]
    until: Expression
    odd: Q
    flag: Q
    records: ProgramRecords
    limit: int
    among: Callable[[QuerySet[Model]], QuerySet[Model]] | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewed lease of a row that meets ``where``, the program's record of it, and the columns to return."""

    until: Expression
    where: Q
    records: ProgramRecords
    returned: tuple[str, ...] = ()


# The name of a row's key among the values.
OWN_KEY = "stator_pk"

_cache: StatementCache[Statement] = StatementCache()


def claim(
    operations: Operations,
    key: Hashable,
    shape: Callable[[], Shape],
    token: UUID,
    values: Mapping[str, object],
) -> tuple[list[Instance], bool, float]:
    """Claim rows and record the claims; return their instances, in no order, the ``flag``, and when it was sent.

    ``key``: equal for equal shapes. The list is empty if there are no such rows or another claim interferes. It is also
    empty if rows have to be marked ready or leases to be ended first, a condition is in force, or a row is ``odd``.
    """
    compiler = compiler_of(operations.model, operations.alias)
    statement = keep(
        operations, (compiler, "claim", sql.FIRST_ROWS, key), lambda: _claim(operations, compiler, shape())
    )
    # The time is taken after compiling, which may take longer than a short lease.
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


def hold(
    claim: Claim,
    key: Hashable,
    build: Callable[..., Renewal],
    values: Mapping[str, object],
    fields: Mapping[str, Field],
) -> Row | None:
    """Renew a lease and change the program's record of the claim; see :func:`stator.claims.hold`."""
    operations = claim.operations.division.near(claim.instance)
    compiler = compiler_of(operations.model, operations.alias)
    given = {name: Parameter(name, fields[name]) for name, value in values.items() if value is not None}
    shape = compiler, "hold", key, tuple(given)
    statement = keep(operations, shape, lambda: _hold(operations, compiler, build(**dict.fromkeys(values) | given)))
    found = _send(operations, statement, sql.BY_KEY, {**values, OWN_KEY: claim.pk, TOKEN: claim.token})
    return found[0] if found else None


def keep(operations: Operations, key: Hashable, make: Callable[[], Statement]) -> Statement:
    """Return the statement of this key, which ``make`` builds the first time, with its constants in its text.

    All parts share one, and operations on all rows have another.
    """
    return _cache.get((key, operations.part is None), lambda: inlined(operations, make()))


def inlined(operations: Operations, statement: Statement) -> Statement:
    """Return a statement with its constants in its text."""
    # Imported by name: the module needs psycopg, which a project on another database may not have.
    found: Statement = import_module("stator.db.session").inlined(operations.connection, statement)
    return found


def _send(operations: Operations, statement: Statement, planner: str, values: Mapping[str, object]) -> list[Row]:
    params: Params = statement.bind(operations.connection, {**values, "part": operations.part})
    # In a caller's transaction an error may not break more than this statement.
    with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
        return operations.fetch(statement.text, params, planner, often=True)


def _claim(operations: Operations, compiler: Compiler, shape: Shape) -> Statement:
    operations = operations.division.template
    rows = operations.claimable(operations.automatic)
    picked = shape.pick(rows.filter(_nothing_else(operations)))
    picked = picked.annotate(stator_odd=shape.odd, stator_flag=shape.flag).values("pk", "stator_odd", "stator_flag")
    changes = {**columns.claiming_due(Parameter(TOKEN, UUIDField()), shape.until), "state_crashes": 0}
    picking, enough = _picking(compiler, picked, shape, shape.among(rows) if shape.among else None)
    return filtered(
        compiler,
        picking,
        changes,
        only=Statement.of(compiler.within(operations), " AND NOT EXISTS (SELECT FROM picked WHERE stator_odd)", enough),
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
    near = among[: sql.FIRST_ROWS].annotate(stator_place=compiler.place).values("pk", "stator_place", "sought")
    pick = selecting(picked.order_by().filter(compiler.at_place("near"))[:1])
    enough = written(
        " AND ((SELECT count(*) FROM picked) = {limit} OR (SELECT count(*) FROM near) < {most})", limit=limit, most=most
    )
    return written(PICKED_NEAR, among=selecting(near), pick=pick, lock=lock, limit=limit), enough


def _nothing_else(operations: Operations) -> Q:
    """Return the condition that no stored condition is in force, and nothing has to be marked ready or reaped."""
    *_, due, expired = probes(operations)
    stored = (each.in_force(operations.alias, operations.label) for each in operations.conditions.stored)
    return Q(*(IsNull(Subquery(rows.order_by()[:1].values("pk")), True) for rows in (*due, *expired, *stored)))


def _inserting(compiler: Compiler, records: ProgramRecords) -> Statement:
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


def _hold(operations: Operations, compiler: Compiler, renewal: Renewal) -> Statement:
    """Return the UPDATE of a lease, and of the program's record of the claim."""
    pk, names = compiler.pk, compiler.column_of(compiler.field("state_locked_until"))
    names += "".join(f", {compiler.column_of(compiler.field(name))}" for name in renewal.returned)
    rows = held(
        operations.division.template, Parameter(OWN_KEY, operations.model._meta.pk), Parameter(TOKEN, UUIDField())
    )
    copied = {
        name: Statement(f"done.{compiler.column_of(compiler.field(of))}") for name, of in renewal.records.copied.items()
    }
    return Statement.of(
        "WITH done AS (",
        updating(rows.filter(renewal.where), {"state_locked_until": renewal.until}),
        f" RETURNING {pk} AS pk, state_claim, {names}), noted AS (",
        _noting(compiler, renewal.records, copied, Statement("done.state_claim")),
        f") SELECT statement_timestamp(), {names} FROM done",  # noqa: S608 - names
    )


def held(operations: Operations, pk: Pk | Parameter, token: UUID | Parameter) -> QuerySet[Model]:
    """Return the row of a claim, if the claim holds it and its lease has not run out."""
    return operations.rows.filter(pk=pk, state_claim=token, state_locked_until__gt=Now())


def _noting(
    compiler: Compiler, records: ProgramRecords, copied: Mapping[str, Statement], token: Statement
) -> Statement:
    """Return the UPDATE, or the DELETE, of the records that refer to rows of ``done`` and have this token."""
    meta, column_of = records.model._meta, compiler.column_of
    table = compiler.quote(meta.db_table)
    row, key = (column_of(meta.get_field(name)) for name in (records.row, records.token))
    mine = Statement.of(f"{table}.{row} = done.pk AND {table}.{key} = ", token)
    if records.forget:
        return Statement.of(f"DELETE FROM {table} USING done WHERE ", mine)  # noqa: S608 - names
    assigned, own = dict(copied), records.values
    for name, value in records.given.items():
        field = meta.get_field(name)
        assigned[name] = compiler.value(field, Parameter(PROGRAM + name, field) if PROGRAM + name in own else value)
    parts = [Statement.of(f"{column_of(meta.get_field(name))} = ", value) for name, value in assigned.items()]
    return Statement.of(f"UPDATE {table} SET ", joined(parts, ", "), " FROM done WHERE ", mine)  # noqa: S608 - names


# The leases of the claims last, and all of them are written, or none.
IN_TIME = " AND t.state_locked_until > statement_timestamp()"
ALL_OR_NONE = " AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)"


class NotedClaims(Effect):
    """A program's records of the claims that end, all or none, and the condition ``only`` under which they do."""

    def __init__(self, store: Store, records: ProgramRecords, only: "Only | None") -> None:
        super().__init__(store)
        self._records, self._only = records, only

    def wants(self, act: Act) -> Hashable:
        """Return what the statement depends on."""
        records = self._records
        copied, only = tuple(records.copied.items()), self._only.key if self._only else None
        return records.model, tuple(records.given), tuple(records.values), copied, records.forget, only

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the change of the records, and a row for each claim with the database's time."""
        compiler, names = self._compiler, value_names(act)
        copied = {name: Statement(f"done.{names[act.saves.index(of)]}") for name, of in self._records.copied.items()}
        noting = _noting(compiler, self._records, copied, Statement("done.claim"))
        only = Statement.of(" AND ", self._inlined(_condition(self._operations, self._only))) if self._only else ""
        changes = {}
        if not act.moved and not act.released:
            # Marked ready here: otherwise the next claim would have to do it first, which takes several statements.
            woken = "state_ready OR v.delay <= 0" if act.claims[0].state.woken_by_events else "v.delay <= 0"
            changes["state_ready"] = RawSQL(woken, [], output_field=BooleanField())
        return Part(
            changes=changes, found=IN_TIME, only=Statement.of(ALL_OR_NONE, only),
            returned=("v.claim", *(f"v.{name}" for name in names)),
            after=Statement.of(",\nnoted AS (", self._inlined(noting), ")"), result="pk, statement_timestamp()",
        )  # fmt: skip

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the values of the records, and the key of the row that the condition is about."""
        into.update(self._records.values)
        into[OWN_KEY] = act.claims[0].pk

    def _inlined(self, statement: Statement) -> Statement:
        return inlined(self._operations, statement)


def end(ended: list[Ended], records: ProgramRecords, only: Only | None) -> Written | None:
    """Write outcomes of one kind and the program's records of the claims; all, or nothing and return None."""
    batch = OutcomeBatch.of(ended)
    operations = batch.operations
    if len(ended) == 1:
        operations = operations.division.near(batch.claims[0].instance)
    noted = NotedClaims(Store(operations, compiler_of(operations.model, operations.alias)), records, only)
    try:
        with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
            return operations.records.record_with(batch, noted)
    except DatabaseError as error:
        if is_retryable(error):
            return None
        raise


def _condition(operations: Operations, only: Only) -> Statement:
    rows = operations.division.template.rows
    return existing(rows.filter(only.build(), pk=Parameter(OWN_KEY, operations.model._meta.pk)))
