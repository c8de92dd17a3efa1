"""Parts for Citus, where the tables are in distributed schemas: each statement goes to one node as it is.

The planner of Citus takes a WITH that updates, but none that inserts. So history, reports and a program's records are
statements of their own, in the transaction of the record.
"""

from contextlib import AbstractContextManager
from typing import Any

from django.db import connections

from stator.db import postgresql, records
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import compiler_of
from stator.db.interface import Operations, OutcomeBatch, Parts
from stator.db.leases import Leases, still_claimed
from stator.db.postgresql import PostgresqlTransactions
from stator.db.records_postgresql import PostgresqlRecords
from stator.db.values import Pk
from stator.rows.statistics import Stats, Stay
from stator.rows.watches import Watch
from stator.statements import Statement, written

looking = postgresql.looking

HOUR = "date_trunc('hour', statement_timestamp(), 'UTC')::{hour_type}"

# The row with the statistics of a batch. The writers of an edge have one each, so none of them waits. Beside columns,
# Citus refuses what depends on the session, but its planner does not look into a subquery.
OF_HOUR = """
model_label = %(label)s AND hour = (SELECT {hour}) AND source = %(source)s AND "to" = %(to)s
    AND shard = %(shard)s::int"""

COUNTED = """
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


class CitusRecords(PostgresqlRecords):
    """Records by one statement for each kind of outcome, which needs the row for its statistics to be there."""

    record_noted = records.Records.record_noted
    _move = records.Records._move
    _kept_with = records.Records._kept_with
    _keeps_attempts = records.Records._keeps_attempts

    def _write(self, batch: OutcomeBatch, *, last: bool = False) -> dict[Pk, float | None]:
        """Write outcomes of one kind. If no valid claim is written, an hour has begun: insert its row and repeat."""
        # Another statement may follow, so none of them commits the transaction.
        operations, accepted = self._operations, super()._write(batch)
        if accepted or batch.released or not still_claimed(operations, batch.claims):
            return accepted
        begun = self._written(NEW_HOUR)
        operations.fetch(begun.text, begun.bind(operations.connection, self._edge(batch.source.name, batch.to)))
        return super()._write(batch)

    def _counting(self) -> Statement:
        return self._written(COUNTED)

    def _if_countable(self) -> Statement:
        return self._written(COUNTABLE)

    def _written(self, text: str) -> Statement:
        kind = Stats._meta.get_field("hour").db_type(connections[self._operations.alias])
        hour = written(HOUR, hour_type=str(kind))
        return written(text, hour=hour, of_hour=written(OF_HOUR, hour=hour))


class SliceRecords(CitusRecords):
    """Records of rows on one node: one statement, and another for the statistics, which are not on that node."""

    def _recording(self, batch: OutcomeBatch) -> AbstractContextManager[object]:
        return self._operations.transaction()

    def _watches(self, batch: OutcomeBatch) -> list[Watch]:
        # Related rows are on other nodes.
        return []

    def _tells(self, batch: OutcomeBatch) -> bool:
        return batch.moved

    def _write(self, batch: OutcomeBatch, *, last: bool = False) -> dict[Pk, float | None]:
        """Write outcomes of one kind, and their statistics."""
        accepted = PostgresqlRecords._write(self, batch)
        if not batch.released:
            stays = [stay for stay in accepted.values() if stay is not None]
            self._count(batch, accepted, [Stay(sum(stays), max(stays))] if stays else [])
        return accepted

    def _further(self, *given: Any) -> Statement:
        return Statement("")

    def _if_countable(self) -> Statement:
        return Statement("")


def parts_of(operations: Operations) -> Parts:
    """Return the parts of these operations; the leases are the portable ones."""
    if operations.model._meta.is_composite_pk:
        return postgresql.parts_of(operations)
    compiler = compiler_of(operations.model, operations.alias)
    transactions = PostgresqlTransactions(operations, compiler)
    kind = CitusRecords if operations.slice is None else SliceRecords
    recorded = kind(operations, compiler, transactions.pick)
    return Parts(transactions, Leases(operations), PostgresqlClaims(operations, compiler), recorded)
