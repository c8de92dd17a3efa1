"""The statistics of outcomes and of moves without a handler, counted in the statements that write these."""

import threading
from collections.abc import Hashable

from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.rows.statistics import Stats
from stator.rows.stay import Stay
from stator.statements import written

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


class CountedAttempts(Effect):
    """The row of statistics of an edge; attempts without a result do not count."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answer = "counted" if store.inserts else AFTER
        # Without a compiler, the stays of all rows are read together.
        self.tells = store.compiler is not None

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
        operations, act = self._operations, done.act
        source, to = act.edge
        failed = sum(outcome.failure is not None for _, outcome in act.ended)
        stays = done.together or [Stay.of_each([stay for stay in done.accepted.values() if stay is not None])]
        Stats.add(
            operations.alias, operations.label, source, to, shard=self.shard(), handled=len(done.accepted),
            failed=failed, stays=stays if act.moved else (),
        )  # fmt: skip

    def shard(self) -> int:
        """The statistics rows that the calling thread updates: threads that share one would wait for each other."""
        return int(self._operations.worker_id[:2], 16) + 256 * (threading.get_native_id() % 127)
