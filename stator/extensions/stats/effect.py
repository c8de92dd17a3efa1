"""The statistics of outcomes and of moves without a handler, counted in the statements that write these."""

import threading
from collections.abc import Hashable
from functools import partial
from typing import Any

from django.db import connections
from django.db.transaction import on_commit

from stator.db.effects import AFTER, LATER, Act, Done, Effect, Part, Store
from stator.extensions.stats.gathered import GATHERED, CountedEdge
from stator.extensions.stats.models import Stats
from stator.rows.stay import Stay
from stator.statements import Statement, written

# ``stayed`` is the time from one ``state_changed`` to the next: 0 for an attempt after which the object stays.
COUNTED = """,
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %(label)s, date_trunc('hour', statement_timestamp(), 'UTC'), %(source)s, %(to)s, %(shard)s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))"""

HOUR = "date_trunc('hour', statement_timestamp(), 'UTC')::{hour_type}"

# The row with the statistics of a batch. The writers of an edge have one each, so none of them waits. Beside columns,
# Citus refuses what depends on the session, but its planner does not look into a subquery.
OF_HOUR = """
model_label = %(label)s AND hour = (SELECT {hour}) AND source = %(source)s AND "to" = %(to)s
    AND shard = %(shard)s::int"""

COUNTED_BY_UPDATE = """,
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


class CountedAttempts(Effect):
    """The row of statistics of an edge; attempts without a result do not count."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answer = "counted" if store.inserts else AFTER
        # Without a compiler, the stays of all rows are read together.
        self.tells = store.compiler is not None

    @classmethod
    def bind(cls, store: Store) -> "CountedAttempts":
        """Return the effect for what the one statement may do."""
        if store.operations.scope.node is not None:
            return GatheredAttempts(store)
        return UpdatedAttempts(store) if store.updates else CountedAttempts(store)

    def wants(self, act: Act) -> Hashable:
        """Return what it is for all acts, except for attempts without a result."""
        return None if act.released else self._answer

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the INSERT of the row of the hour, or its UPDATE."""
        return Part(after=written(COUNTED))

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the shard."""
        into["shard"] = self.shard()

    def write(self, done: Done) -> None:
        """Count the rows."""
        operations, (source, to) = self._operations, done.act.edge
        Stats.add(operations.alias, operations.label, source, to, shard=self.shard(), **self._counts(done))

    def _counts(self, done: Done) -> dict[str, Any]:
        failed = sum(outcome.failure is not None for _, outcome in done.act.ended)
        stays = done.together or [Stay.of_each([stay for stay in done.accepted.values() if stay is not None])]
        return {"handled": len(done.accepted), "failed": failed, "stays": stays if done.act.moved else ()}

    def shard(self) -> int:
        """The statistics rows that the calling thread updates: threads that share one would wait for each other."""
        return int(self._operations.worker_id[:2], 16) + 256 * (threading.get_native_id() % 127)


class GatheredAttempts(CountedAttempts):
    """The statistics of rows on another node than their own: they are gathered, and written once a second."""

    def wants(self, act: Act) -> Hashable:
        """Return that it is written later; moves without a handler are few transactions, which have it."""
        return None if act.released else LATER if act.claims else AFTER

    def note(self, done: Done) -> None:
        """Add the rows to what is written next, once they are committed."""
        edge = CountedEdge(self.alias, self._operations.scope.path, self._operations.label, *done.act.edge)
        on_commit(partial(GATHERED.add, edge, shard=self.shard(), **self._counts(done)), using=self.alias)


class UpdatedAttempts(CountedAttempts):
    """The row of statistics where one statement may insert none: an UPDATE, without which no row is written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answer = "counted"

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the UPDATE of the row of the hour."""
        return Part(only=self._written(COUNTABLE), after=self._written(COUNTED_BY_UPDATE))

    def begin(self, act: Act) -> None:
        """Insert the row of the hour."""
        source, to = act.edge
        values = {"label": self._operations.label, "source": source, "to": to, "shard": self.shard()}
        begun = self._written(NEW_HOUR)
        self._operations.fetch(begun.text, begun.bind(self._operations.connection, values))

    def _written(self, text: str) -> Statement:
        kind = Stats._meta.get_field("hour").db_type(connections[self._operations.alias])
        hour = written(HOUR, hour_type=str(kind))
        return written(text, hour=hour, of_hour=written(OF_HOUR, hour=hour))
