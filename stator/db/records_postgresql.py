"""Records of outcomes on PostgreSQL: RECORD and MOVE. ``records`` has the statements for every database.

One statement, and so one transaction, writes outcomes of one kind with their statistics, history and report. Names come
quoted. Rows that somebody else has locked are skipped.
"""

from collections.abc import Callable, Hashable
from functools import cached_property
from operator import attrgetter

from django.db import DatabaseError, connections
from django.db.models import F, Model, QuerySet
from django.db.models.expressions import RawSQL

from stator import signals
from stator.db import records, sql
from stator.db.compiler import Compiler, places_of
from stator.db.effects import Act, Part, RecordPlan, RowsMove, Store
from stator.db.interface import Operations, OutcomeBatch, Written
from stator.db.outcome_columns import changes_by_arrays, delays_of
from stator.db.records import Accepted
from stator.db.values import Pk, Row
from stator.rows import columns
from stator.rows.stay import Stay
from stator.statements import Statement, written

# Rows are found by their key or, with ``places``, first where their claim has put them: the index of keys has an entry
# for each version of a row. For IS NOT DISTINCT FROM the planner uses no index, so it does not meet the dead entries of
# the index of leases or of keys. The locked rows are updated where they were found. Each further column costs a little
# for each row.
RECORD = """
WITH v AS (
  SELECT pk, (%(tokens)s::uuid[])[nth] AS claim, delay, failed{names}
  FROM unnest(%(keys)s::{pk_type}[], %(nth)s::int[], %(delays)s::float8[], %(failed)s::bool[]{arrays})
    AS v(pk, nth, delay, failed{names})),
{mine},
done AS (
  UPDATE {table} SET {set} FROM mine v
  WHERE {table}.ctid = v.found AND {table}.{pk} IS NOT DISTINCT FROM v.pk{only}
    AND {table}.state_claim IS NOT DISTINCT FROM v.claim AND {table}.{state} = %(stored)s{within}
  RETURNING {table}.{pk} AS pk, v.failed, {returned}{table}.state_changed - v.entered AS stayed){further}
SELECT {result} FROM done
"""

HELD = """
  SELECT {kept}, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN {table} t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.{state} = %(stored)s{within}"""

BY_KEY = """{name} AS MATERIALIZED ({held} AND t.{pk} = v.pk{condition} FOR NO KEY UPDATE OF t SKIP LOCKED)"""

AT_PLACES = """placed AS MATERIALIZED ({held} AND t.ctid = v.place AND t.{pk} IS NOT DISTINCT FROM v.pk{condition}
  FOR NO KEY UPDATE OF t SKIP LOCKED),
{others},
mine AS (SELECT * FROM placed UNION ALL SELECT * FROM others)"""
NOT_PLACED = " AND (SELECT count(*) FROM placed) < (SELECT count(*) FROM v) AND v.pk NOT IN (SELECT pk FROM placed)"

WITH_STAY = "pk, greatest(date_part('epoch', stayed), 0)"

# ``pick`` locks the rows. ``stator_entered`` is their ``state_changed``, and ``stator_place`` their place.
MOVE = """
WITH picked AS MATERIALIZED ({pick}),
done AS (
  UPDATE {table} SET {set} FROM picked
  WHERE {table}.ctid = picked.stator_place AND {table}.{pk} IS NOT DISTINCT FROM picked.{key}{within}
  RETURNING {table}.{pk} AS pk, {table}.state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    {table}.state_changed - picked.stator_entered AS stayed, %(worker)s AS worker){further}
SELECT {result} FROM done
"""


_place = attrgetter("place")

# The places of rows, with null where a place is not known.
AT_CTID = Part(arrays=", %(places)s::tid[]", names=("place",))


class PostgresqlRecords(records.Records):
    """Records by one statement for each kind of outcome."""

    _is_one_statement = True

    def __init__(self, operations: Operations, compiler: Compiler, pick: Callable[..., Statement]) -> None:
        super().__init__(Store(operations, compiler, operations.capabilities.writes_in_with))
        self._compiler = compiler
        self._by_edge: dict[tuple[Hashable, ...], Statement] = {}
        # Returns a query that locks rows and gives their keys.
        self._pick = pick

    def record_batch(self, batch: OutcomeBatch, *, again: bool = False, last: bool = False) -> Written:
        """Record like the portable method; rows that no effect leaves out take one statement."""
        plan = self._plan(batch) if self._may_be_picky and not again else None
        if plan is None or plan.further or plan.later or not plan.complete:
            return super().record_batch(batch, again=again, last=last)
        accepted = set(self._compiler.keys_of(self._send(batch, plan)))
        rest = [ended for ended in batch.ended if ended[0].pk not in accepted]
        if not accepted or not rest:
            return super().record_batch(batch, last=last) if rest else batch.accepted()
        written = batch.only(accepted).accepted()
        try:
            return Written.total([written, super().record_batch(OutcomeBatch.of(rest, batch.note), last=last)])
        except DatabaseError:
            if self._operations.connection.in_atomic_block:
                raise
            # What is written is committed. Written again by themselves, the others tell of an error that stays.
            written.deferred = rest
            return written

    def record_at_once(self, batch: OutcomeBatch) -> Written | None:
        """Record all of the outcomes, or none, if that takes one statement."""
        plan = self._plan(batch)
        if len(batch.ended) > 1:
            plan = plan.complete or plan
        written = self._send(batch, plan) if not (plan.further or plan.later) else []
        if not written:
            return None
        result = batch.accepted()
        result.at = written[0][1]
        return result

    def _write(self, batch: OutcomeBatch, plan: RecordPlan, *, last: bool) -> tuple[Accepted, list[Stay]]:
        """Write outcomes of one kind and their effects (RECORD); a row is written only while its claim is valid."""
        written, tells = self._send(batch, plan, last=last), plan.tells and batch.moved
        keys = self._compiler.keys_of(written)
        return (dict(zip(keys, [stay for _, stay in written], strict=True)) if tells else dict.fromkeys(keys)), []

    def _send(self, batch: OutcomeBatch, plan: RecordPlan, *, last: bool = False) -> list[Row]:
        """Send RECORD. Arrays of equal values are empty: unnest fills them up with null."""
        placed = any(map(_place, batch.claims))
        of_edge = batch.edge, placed, plan.answers
        statement = self._by_edge.get(of_edge)
        if statement is None:
            statement = self._by_edge[of_edge] = self._statement(batch, plan, placed=placed)
        values: dict[str, object] = self._compiler.claimed(batch.claims) | {
            "stored": batch.source.value,
            "delays": [] if batch.moved else delays_of(batch),
            "failed": [outcome.failure is not None for _, outcome in batch.ended] if batch.failed else [],
            "places": places_of(batch.claims) if placed else None,
        }
        return self._fetched(statement, batch, plan, values, often=True, last=last)

    def _fetched(
        self, statement: Statement, act: Act, plan: RecordPlan, values: dict[str, object], **sent: bool
    ) -> list[Row]:
        """Return the answer to a statement that moves rows along an edge, with the values of its effects."""
        operations, (source, to) = self._operations, act.edge
        values |= {"label": operations.label, "source": source, "to": to, "part": operations.part}
        for effect, answer in plan.together:
            effect.values(act, answer, values)
        params = statement.bind(connections[operations.alias], values)
        return operations.fetch(statement.text, params, sql.TO_FIRST if plan.complete else sql.BY_KEY, **sent)

    def _statement(self, batch: OutcomeBatch, plan: RecordPlan, *, placed: bool) -> Statement:
        """Return the statement of a batch, which edges into one state share if nothing else depends on the source."""
        source = batch.source
        goes_on = source.name if batch.may_go_on else ""
        woken = not (batch.moved or batch.released) and source.may_be_woken
        shape = batch.to, goes_on, woken, placed, plan.answers
        if shape not in self._statements:
            self._statements[shape] = self._compiled(batch, plan, placed=placed)
        return self._statements[shape]

    @cached_property
    def _statements(self) -> dict[tuple[Hashable, ...], Statement]:
        return self._compiler.statements_of((type(self), *map(type, self.effects)), self._operations)

    def _compiled(self, batch: OutcomeBatch, plan: RecordPlan, *, placed: bool) -> Statement:
        parts = [AT_CTID] * placed + plan.parts(batch)
        names = [name for part in parts for name in part.names]
        kept = ["pk", "claim", "delay", "failed", *names]
        passed = [f"v.{name}" for name in kept] + [each for part in parts for each in part.passed]
        return self._composed(
            RECORD,
            parts,
            changes_by_arrays(self._operations.state_field, batch.outcome, batch.source),
            pk_type=self._compiler.pk_type,
            arrays=written("".join(part.arrays for part in parts)),
            names="".join(f", {name}" for name in names),
            mine=Statement.of(self._locked(parts, ", ".join(passed)), *(part.before for part in parts)),
            only=Statement.of(*(part.only for part in parts)),
            returned="".join(f"{each}, " for part in parts for each in part.returned),
            result="".join([WITH_STAY if plan.tells and batch.moved else "pk", *(part.result for part in parts)]),
        )

    def _composed(self, text: str, parts: list[Part], changes: columns.Changes, **holes: str | Statement) -> Statement:
        """Return a statement that updates rows, with the columns and the effects that its parts write as well."""
        compiler = self._compiler
        for part in parts:
            changes |= part.changes or {}
        return written(
            text, table=compiler.table, state=compiler.state, pk=compiler.pk, within=compiler.within(self._operations),
            set=Statement.of(compiler.assigned(changes), *(part.set for part in parts)),
            further=Statement.of(*(part.after for part in parts)), **holes,
        )  # fmt: skip

    def _locked(self, parts: list[Part], passed: str) -> Statement:
        """Return the rows of standing claims, locked, as ``mine``."""
        compiler, pk, condition = self._compiler, self._compiler.pk, "".join(part.locked for part in parts)
        own = {"table": compiler.table, "state": compiler.state, "kept": passed}
        held = written(HELD, **own, within=compiler.within(self._operations, "t"))
        if AT_CTID not in parts:
            return written(BY_KEY, name="mine", held=held, pk=pk, condition=condition)
        others = written(BY_KEY, name="others", held=held, pk=pk, condition=condition + NOT_PLACED)
        return written(AT_PLACES, held=held, pk=pk, condition=condition, others=others)

    def _move(
        self, move: RowsMove, rows: QuerySet[Model], limit: int, changes: columns.Changes
    ) -> tuple[int, list[Pk]]:
        """Move rows without a handler (MOVE), in one statement for any number of them."""
        operations, plan = self._operations, self._plan(move)
        if plan.further:
            return super()._move(move, rows, limit, changes)
        source, to = move.edge
        followed = to in operations.entries or source in operations.exits
        tell = followed or signals.transitioned.has_listeners(operations.model)
        # No field of the model has these names.
        also: dict[str, F | RawSQL] = {"stator_entered": F("state_changed"), "stator_place": self._compiler.place}
        holes = {"key": self._compiler.quote("pk"), "result": "pk" if tell else "count(*)"}
        statement = self._composed(MOVE, plan.parts(move), changes, pick=self._pick(rows, limit, **also), **holes)
        moved = self._fetched(statement, move, plan, {"worker": operations.worker_id})
        pks = self._compiler.keys_of(moved) if tell else []
        return len(pks) if tell else moved[0][0], pks
