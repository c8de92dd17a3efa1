"""Claims and leases of programs in one statement each, which also writes what the program keeps beside its claims.

For databases where a WITH can write. Such a statement handles the usual case only. In any other case it does nothing,
and the caller sends several statements instead.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Self, TypeVar, cast
from uuid import UUID

from django.db import DatabaseError, IntegrityError
from django.db.models import BooleanField, Expression, Field, Model, Q, QuerySet, Subquery, UUIDField
from django.db.models.expressions import RawSQL
from django.db.models.lookups import IsNull

from stator.db import sql
from stator.db.claims_postgresql import PICKED, PICKED_NEAR, TOKEN, filtered, lock_of
from stator.db.compiler import Compiler, compiler_of
from stator.db.effects import Act, Effect, Part, Store
from stator.db.instances import load_all
from stator.db.interface import Claim, Operations
from stator.db.kept_statements import inlined, keep, send
from stator.db.probe import probes
from stator.db.retry import is_retryable
from stator.db.values import Instance, Pk, Row
from stator.rows import columns
from stator.rows.clock import Now
from stator.statements import Parameter, Statement, existing, selecting, updating, written

# Narrows and orders rows.
M = TypeVar("M", bound=Model)
Pick = Callable[[QuerySet[M]], QuerySet[M]]

# The name of a row's key among the values.
OWN_KEY = "stator_pk"

# Conditions of an end: the leases of the claims last, and all rows are found.
IN_TIME = " AND t.state_locked_until > statement_timestamp()"
ALL = " AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)"


def claim(
    operations: Operations,
    key: Hashable,
    pick: "Pick[M]",
    until: Callable[[], Expression],
    token: UUID,
    limit: int,
    values: Mapping[str, object],
    *,
    also: Statement,
    among: "Pick[M] | None",
) -> tuple[list[Instance], bool, float]:
    """Claim rows; return their instances, in no order, whether all have the ``stator_flag``, and when it was sent.

    For the arguments see :func:`stator.claims.claim_at_once`. The list is empty if there are no such rows or another
    claim interferes. It is also empty if rows have to be marked ready or leases to be ended first, a condition is in
    force, or a row is ``stator_odd``.
    """
    compiler = compiler_of(operations.model, operations.alias)
    statement = keep(
        operations,
        (compiler, "claim", sql.FIRST_ROWS, limit, key),
        lambda: _claim(operations, compiler, pick, until(), limit, also, among),
    )
    # The time is taken after compiling, which may take longer than a short lease.
    since = time.monotonic()
    try:
        rows = send(operations, statement, sql.IN_ORDER, {**values, TOKEN: token})
    except DatabaseError as error:
        if isinstance(error, IntegrityError) or is_retryable(error):
            return [], False, since
        raise
    cells = [row[:-1] for row in rows]
    instances = load_all(compiler.model, operations.connection, compiler.read, cells)
    return instances, bool(rows and rows[0][-1]), since


def hold(
    claim: Claim,
    key: Hashable,
    build: Callable[..., tuple[Expression, Q]],
    values: Mapping[str, object],
    fields: Mapping[str, Field],
    *,
    also: Statement,
    returned: tuple[str, ...],
) -> Row | None:
    """Renew a lease; see :func:`stator.claims.hold`."""
    operations = claim.operations.division.near(claim.instance)
    compiler = compiler_of(operations.model, operations.alias)
    given = {name: Parameter(name, fields[name]) for name, value in values.items() if value is not None}
    statement = keep(
        operations,
        (compiler, "hold", key, tuple(given)),
        lambda: _hold(operations, compiler, build(**dict.fromkeys(values) | given), also, returned),
    )
    rows = send(operations, statement, sql.BY_KEY, {**values, OWN_KEY: claim.pk, TOKEN: claim.token})
    return rows[0] if rows else None


def held(operations: Operations, pk: Pk | Parameter, token: UUID | Parameter) -> QuerySet[Model]:
    """Return the row of a claim, if the claim holds it and its lease has not run out."""
    return operations.rows.filter(pk=pk, state_claim=token, state_locked_until__gt=Now())


class AllOrNone(Effect):
    """No effect but a condition: outcomes of a program's claims are written all or none, while their leases run."""

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for the claims of programs, where one statement writes outcomes."""
        return cls(store) if store.compiler and store.operations.for_programs else None

    def wants(self, act: Act) -> Hashable:
        """Return the condition of the row, if there is to be one statement."""
        return act.at_once

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the conditions and the database's time."""
        operations, where = self._operations, act.at_once.where if act.at_once else None
        only: list[str | Statement] = [ALL]
        if where is not None:
            rows = operations.division.template.rows
            row = existing(rows.filter(where, pk=Parameter(OWN_KEY, operations.model._meta.pk)))
            only += [" AND ", inlined(operations.connection, row)]
        changes = {}
        if not act.moved and not act.released:
            # Marked ready here: otherwise the next claim would have to do it first, which takes several statements.
            woken = "state_ready OR v.delay <= 0" if act.claims[0].state.may_be_woken else "v.delay <= 0"
            changes["state_ready"] = RawSQL(woken, [], output_field=BooleanField())
        return Part(changes=changes, locked=IN_TIME, only=Statement.of(*only), result=", statement_timestamp()")

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the key of the row."""
        into[OWN_KEY] = act.claims[0].pk


def _claim(
    operations: Operations,
    compiler: Compiler,
    pick: "Pick[M]",
    until: Expression,
    limit: int,
    also: Statement,
    among: "Pick[M] | None",
) -> Statement:
    operations = operations.division.template
    rows = cast("QuerySet[M]", operations.claimable(operations.automatic))
    picked = pick(rows.filter(_nothing_else(operations))).values("pk", "stator_odd", "stator_flag")
    changes = {**columns.claiming_due(operations.state_field, Parameter(TOKEN, UUIDField()), until), "state_crashes": 0}
    picking, enough = _picking(compiler, picked, limit, among(rows) if among else None)
    only = Statement.of(compiler.within(operations), " AND NOT EXISTS (SELECT FROM picked WHERE stator_odd)", enough)
    answer = ", (SELECT bool_and(stator_flag) FROM picked)"
    return filtered(compiler, picking, changes, only=only, further=also, answer=answer)


def _picking(
    compiler: Compiler, picked: QuerySet[Model, dict[str, object]], limit: int, among: QuerySet[Model] | None
) -> tuple[Statement, Statement]:
    """Return the part of a WITH that locks the rows that are ``picked``, and a condition for that to be enough."""
    lock = lock_of(compiler)
    if among is None:
        return written(PICKED, pick=selecting(picked[:limit]), lock=lock), Statement("")
    most_found, most = Statement("%s", (limit,)), Statement("%s", (sql.FIRST_ROWS,))
    near = among[: sql.FIRST_ROWS].annotate(stator_place=compiler.place).values("pk", "stator_place", "sought")
    one = selecting(picked.order_by().filter(compiler.at_place("near"))[:1])
    enough = written(
        " AND ((SELECT count(*) FROM picked) = {limit} OR (SELECT count(*) FROM near) < {most})",
        limit=most_found, most=most,
    )  # fmt: skip
    return written(PICKED_NEAR, among=selecting(near), pick=one, lock=lock, limit=most_found), enough


def _nothing_else(operations: Operations) -> Q:
    """Return the condition that no stored condition is in force, and nothing has to be marked ready or reaped."""
    *_, due, expired = probes(operations)
    stored = (each.in_force(operations.alias, operations.label) for each in operations.conditions.stored)
    return Q(*(IsNull(Subquery(rows.order_by()[:1].values("pk")), True) for rows in (*due, *expired, *stored)))


def _hold(
    operations: Operations,
    compiler: Compiler,
    renewal: tuple[Expression, Q],
    also: Statement,
    returned: tuple[str, ...],
) -> Statement:
    until, where = renewal
    names = ", ".join(compiler.column_of(compiler.field(name)) for name in ("state_locked_until", *returned))
    key, token = Parameter(OWN_KEY, operations.model._meta.pk), Parameter(TOKEN, UUIDField())
    rows = held(operations.division.template, key, token).filter(where)
    return Statement.of(
        "WITH done AS (",
        updating(rows, {"state_locked_until": until}),
        f" RETURNING {compiler.pk} AS pk, state_claim, {names})",
        also,
        f" SELECT statement_timestamp(), {names} FROM done",  # noqa: S608 - names
    )
