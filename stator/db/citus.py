"""Parts for Citus, where the tables are in distributed schemas: each statement goes to one node as it is.

The planner of Citus takes a WITH that updates, but none that inserts. So history, reports and a program's records are
statements of their own, in the transaction of the record.
"""

from collections.abc import Hashable
from functools import cached_property

from django.db import connections

from stator.db import postgresql, records
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import compiler_of
from stator.db.counted_attempts import CountedAttempts
from stator.db.effects import Act, Effect, Part, Plan, Store
from stator.db.interface import Operations, OutcomeBatch, Parts
from stator.db.leases import Leases, still_claimed
from stator.db.postgresql import PostgresqlTransactions
from stator.db.records import Accepted
from stator.db.records_postgresql import PostgresqlRecords
from stator.rows.statistics import Stats
from stator.rows.stay import Stay
from stator.statements import Statement, written

looking = postgresql.looking

HOUR = "date_trunc('hour', statement_timestamp(), 'UTC')::{hour_type}"

# The row with the statistics of a batch. The writers of an edge have one each, so none of them waits. Beside columns,
# Citus refuses what depends on the session, but its planner does not look into a subquery.
OF_HOUR = """
model_label = %(label)s AND hour = (SELECT {hour}) AND source = %(source)s AND "to" = %(to)s
    AND shard = %(shard)s::int"""

COUNTED = """,
counted AS (
  UPDATE stator_stats SET handled = handled + ended.number, failed = failed + ended.failures,
    seconds = seconds + ended.stayed, longest = greatest(longest, ended.most)
  FROM (SELECT count(*) AS number, count(*) FILTER (WHERE failed) AS failures,
      greatest(date_part('epoch', sum(stayed)), 0) AS stayed, greatest(date_part('epoch', max(stayed)), 0) AS most
    FROM done) ended
  WHERE {of_hour})"""

COUNTABLE = " AND EXISTS (SELECT 1 FROM stator_stats WHERE {of_hour})"

NEW_HOUR = """
INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
VALUES (%(label)s, {hour}, %(source)s, %(to)s, %(shard)s, 0, 0, 0, 0)
ON CONFLICT (model_label, hour, source, "to", shard) DO NOTHING
"""


class CitusAttempts(CountedAttempts):
    """The statistics of the rows of one node: an UPDATE, without which no row is written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answer = "counted"

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the UPDATE of the row of the hour."""
        return Part(only=self._written(COUNTABLE), after=self._written(COUNTED))

    def begin_hour(self, act: OutcomeBatch) -> None:
        """Insert the row of the hour."""
        source, to = act.edge
        values = {"label": self._operations.label, "source": source, "to": to, "shard": self.shard()}
        begun = self._written(NEW_HOUR)
        self._operations.fetch(begun.text, begun.bind(self._operations.connection, values))

    def _written(self, text: str) -> Statement:
        kind = Stats._meta.get_field("hour").db_type(connections[self._operations.alias])
        hour = written(HOUR, hour_type=str(kind))
        return written(text, hour=hour, of_hour=written(OF_HOUR, hour=hour))


class CitusRecords(PostgresqlRecords):
    """Records by one statement for each kind of outcome, which needs the row for its statistics to be there."""

    _move = records.Records._move

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        store = Store(self._operations, self._compiler)
        return tuple(CitusAttempts(store) if type(each) is CountedAttempts else each for each in super().effects)

    def _write(self, batch: OutcomeBatch, plan: Plan, *, last: bool) -> tuple[Accepted, list[Stay]]:
        """Write outcomes of one kind. If no valid claim is written, an hour has begun: insert its row and repeat."""
        # Another statement may follow, so none of them commits the transaction.
        written = super()._write(batch, plan, last=False)
        if written[0] or batch.released or not still_claimed(self._operations, batch.claims):
            return written
        for effect, _ in plan.together:
            if isinstance(effect, CitusAttempts):
                effect.begin_hour(batch)
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
