"""Parts for Citus, where the tables are in distributed schemas: each statement goes to one node as it is.

The planner of Citus takes a WITH that updates, but none that inserts. So history, reports and a program's records are
statements of their own, in the transaction of the record.
"""

from dataclasses import replace
from functools import cached_property

from stator.db import postgresql, records
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import compiler_of
from stator.db.effect_table import bound
from stator.db.effects import Effect, Plan
from stator.db.interface import Operations, OutcomeBatch, Parts
from stator.db.leases import Leases, still_claimed
from stator.db.postgresql import PostgresqlTransactions
from stator.db.records import Accepted
from stator.db.records_postgresql import PostgresqlRecords
from stator.rows.stay import Stay

looking = postgresql.looking


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


def parts_of(operations: Operations) -> Parts:
    """Return the parts of these operations; the leases are the portable ones."""
    if operations.model._meta.is_composite_pk:
        return postgresql.parts_of(operations)
    compiler = compiler_of(operations.model, operations.alias)
    transactions = PostgresqlTransactions(operations, compiler)
    kind = CitusRecords if operations.part is None else SliceRecords
    recorded = kind(operations, compiler, transactions.pick)
    return Parts(transactions, Leases(operations), PostgresqlClaims(operations, compiler), recorded)
