"""Parts for Citus, where the tables are in distributed schemas: each statement goes to one node as it is.

The planner of Citus takes a WITH that updates, but none that inserts. So history, reports and a program's records are
statements of their own, in the transaction of the record.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db import postgresql, records, sql
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import compiler_of
from stator.db.effect_table import bound
from stator.db.effects import Effect, RecordPlan
from stator.db.interface import Operations, OutcomeBatch, StoreParts, Written
from stator.db.leases import Leases, still_claimed
from stator.db.postgresql import PostgresqlTransactions
from stator.db.records import Accepted
from stator.db.records_postgresql import PostgresqlRecords
from stator.db.session import Session, session_of
from stator.db.values import Params, Row
from stator.extensions.slices.away import look_patience, patience
from stator.rows.stay import Stay

reading = postgresql.reading


@contextmanager
def looking(connection: BaseDatabaseWrapper, lock: float, most: float) -> Iterator[None]:
    """Limit the seconds that statements of a block wait for locks, take, and wait for a node that is silent."""
    with look_patience(connection), postgresql.looking(connection, lock, most):
        yield


class CitusTransactions(PostgresqlTransactions):
    """Transactions and statements of workers that wait for no silent node."""

    def fetch(
        self, statement: str, params: Params, planner: str = sql.ANY, *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement."""
        operations, connection = self._operations, self._operations.connection
        with patience(operations, everywhere=operations.model._meta.db_table in statement):
            if often and operations.division.has_own_text and (session := _session_alone(connection)):
                # With settings ahead of it, Citus begins a transaction on the node, which they do not reach anyway.
                session.settle(connection, operations.locks.wait)
                return session.send(connection, "", statement, params, often=True, alone=True)
            return super().fetch(statement, params, planner, often=often, last=last)

    @contextmanager
    def transaction(self, *, wait: float | None = None) -> Iterator[None]:
        """Return a transaction at READ COMMITTED."""
        if session := _session_alone(self._operations.connection):
            session.unsettle(self._operations.connection)
        with patience(self._operations), super().transaction(wait=wait):
            yield


def _session_alone(connection: BaseDatabaseWrapper) -> Session | None:
    """Return the session of a connection if a statement can be a message, and a transaction, by itself there.

    Behind a pooler, the settings of a session may be for another client's statements.
    """
    if connection.in_atomic_block or not connection.get_autocommit():
        return None
    session = session_of(connection)
    if not session.direct or session.isolation != "read committed":
        return None
    if _with_own_settings not in connection.execute_wrappers:
        connection.execute_wrappers.append(_with_own_settings)
    return session


def _with_own_settings(
    execute: Callable[..., object], text: object, params: object, many: bool, context: dict[str, Any]
) -> object:
    """Send a statement of Django's cursor, which may be the project's, in a session with its own settings."""
    connection = context["connection"]
    if not connection.in_atomic_block:
        session_of(connection).unsettle(connection)
    return execute(text, params, many, context)


class CitusRecords(PostgresqlRecords):
    """Records by one statement for each kind of outcome, which needs the row for its statistics to be there."""

    _move = records.Records._move

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        return bound(replace(self._store, updates=True))

    def _write(self, batch: OutcomeBatch, plan: RecordPlan, *, last: bool) -> tuple[Accepted, list[Stay]]:
        """Write outcomes of one kind. If no valid claim is written, a row to update is missing: insert it, repeat."""
        # Another statement may follow, so none of them commits the transaction.
        written = super()._write(batch, plan, last=False)
        if written[0] or batch.released or not still_claimed(self._operations, batch.claims):
            return written
        for effect, _ in plan.together:
            effect.begin(batch)
        return super()._write(batch, plan, last=False)


class SliceRecords(PostgresqlRecords):
    """Records of rows on one node: one statement, and further ones for what is not on that node."""

    _move = records.Records._move

    def _record_batch(self, batch: OutcomeBatch, *, again: bool, last: bool) -> Written:
        with patience(self._operations):
            return super()._record_batch(batch, again=again, last=last)


def parts_of(operations: Operations) -> StoreParts:
    """Return the parts of these operations; the leases are the portable ones."""
    if operations.model._meta.is_composite_pk:
        return postgresql.parts_of(operations)
    compiler = compiler_of(operations.model, operations.alias)
    transactions = CitusTransactions(operations, compiler)
    kind = CitusRecords if operations.part is None else SliceRecords
    recorded = kind(operations, compiler, transactions.pick)
    return StoreParts(transactions, Leases(operations), PostgresqlClaims(operations, compiler), recorded)
