"""Parts for Citus, where the tables are in distributed schemas: each statement goes to one node as it is.

The planner of Citus takes a WITH that updates, but none that inserts. So history, reports and a program's records are
statements of their own, in the transaction of the record.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from stator.db import postgresql, records, sql
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import compiler_of
from stator.db.effect_table import bound
from stator.db.effects import Effect, Plan
from stator.db.interface import Operations, OutcomeBatch, Parts, Written
from stator.db.leases import Leases, still_claimed
from stator.db.postgresql import PostgresqlTransactions
from stator.db.records import Accepted
from stator.db.records_postgresql import PostgresqlRecords
from stator.db.values import Params, Row
from stator.extensions.slices.away import look_patience, patience
from stator.rows.stay import Stay

reading = postgresql.reading


@contextmanager
def looking(connection: Any, lock: float, most: float) -> Iterator[None]:
    """Limit the seconds that statements of a block wait for locks, take, and wait for a node that is silent."""
    with look_patience(connection), postgresql.looking(connection, lock, most):
        yield


class CitusTransactions(PostgresqlTransactions):
    """Transactions and statements of workers that wait for no silent node."""

    def fetch(
        self, statement: str, params: Params, planner: str = sql.ANY, *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement."""
        with patience(self._operations, everywhere=self._operations.model._meta.db_table in statement):
            return super().fetch(statement, params, planner, often=often, last=last)

    @contextmanager
    def transaction(self, *, wait: float | None = None) -> Iterator[None]:
        """Return a transaction at READ COMMITTED."""
        with patience(self._operations), super().transaction(wait=wait):
            yield


class CitusRecords(PostgresqlRecords):
    """Records by one statement for each kind of outcome, which needs the row for its statistics to be there."""

    _move = records.Records._move

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        return bound(replace(self._store, updates=True))

    def _write(self, batch: OutcomeBatch, plan: Plan, *, last: bool) -> tuple[Accepted, list[Stay]]:
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


def parts_of(operations: Operations) -> Parts:
    """Return the parts of these operations; the leases are the portable ones."""
    if operations.model._meta.is_composite_pk:
        return postgresql.parts_of(operations)
    compiler = compiler_of(operations.model, operations.alias)
    transactions = CitusTransactions(operations, compiler)
    kind = CitusRecords if operations.part is None else SliceRecords
    recorded = kind(operations, compiler, transactions.pick)
    return Parts(transactions, Leases(operations), PostgresqlClaims(operations, compiler), recorded)
