"""Records of outcomes on PostgreSQL: RECORD and MOVE. ``records`` has the statements for every database.

One statement, and so one transaction, writes outcomes of one kind with their statistics, history and report. Names come
quoted. Rows that somebody else has locked are skipped.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

from django.db import DatabaseError
from django.db.models import BooleanField, DurationField, F, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from stator import signals
from stator.db import records, sql
from stator.db.compiler import Compiler, places_of
from stator.db.effect_table import bound
from stator.db.effects import AFTER, Effect, Part, RowsMove, Store, parts_of, wanted
from stator.db.interface import Operations, OutcomeBatch, Written
from stator.db.records import Accepted
from stator.db.values import Pk, Row
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.state_column import StateField
from stator.rows.stay import Stay
from stator.statements import Placeholder, Statement, written

# Rows are found by their key or, with ``places``, first where their claim has put them: the index of keys has an entry
# for each version of a row. For IS NOT DISTINCT FROM the planner uses no index, so it does not meet the dead entries of
# the index of leases or of keys. The locked rows are updated where they were found. Each further column costs a little
# for each row.
RECORD = """
WITH v AS (
  SELECT * FROM unnest(%(keys)s::{pk_type}[], %(claims)s::uuid[], %(delays)s::float8[], %(failed)s::bool[],
    %(durations)s::float8[]{arrays}) AS v(pk, claim, delay, failed, duration{names})),
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

AT_PLACES = """placed AS MATERIALIZED ({held} AND t.ctid = v.place AND t.{pk} IS NOT DISTINCT FROM v.pk
  FOR NO KEY UPDATE OF t SKIP LOCKED),
{others},
mine AS (SELECT * FROM placed UNION ALL SELECT * FROM others)"""
NOT_PLACED = " AND (SELECT count(*) FROM placed) < (SELECT count(*) FROM v) AND v.pk NOT IN (SELECT pk FROM placed)"

WITH_STAY = "pk, greatest(date_part('epoch', stayed), 0)"

# For claims with records of a program: their leases last, and all of them are written, or none.
IN_TIME = " AND t.state_locked_until > statement_timestamp()"
ALL_OR_NONE = " AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)"

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


# The places of rows, with null where a place is not known.
AT_CTID = Part(arrays=", %(places)s::tid[]", names=("place",))


class PostgresqlRecords(records.Records):
    """Records by one statement for each kind of outcome."""

    def __init__(self, operations: Operations, compiler: Compiler, pick: Callable[..., Statement]) -> None:
        super().__init__(operations)
        self._compiler = compiler
        # Returns a query that locks rows and gives their keys.
        self._pick = pick

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        return bound(Store(self._operations, self._compiler, self._operations.capabilities.writes_in_with))

    def record_batch(self, batch: OutcomeBatch, *, again: bool = False, last: bool = False) -> Written:
        """Record like the portable method; rows that no effect leaves out take one statement."""
        answers = wanted(self.effects, batch) if self._picky and not again else (AFTER,)
        if AFTER in answers or all(answers[at] is None for at in self._picky):
            return super().record_batch(batch, again=again, last=last)
        accepted = set(self._compiler.keys_of(self._send(batch, answers)))
        rest = [ended for ended in batch.ended if ended[0].pk not in accepted]
        if not accepted or not rest:
            return super().record_batch(batch, last=last) if rest else batch.accepted()
        written = batch.only(accepted).accepted()
        try:
            return Written.total([written, super().record_batch(OutcomeBatch.of(rest), last=last)])
        except DatabaseError:
            if self._operations.connection.in_atomic_block:
                raise
            # What is written is committed. Written again by themselves, the others tell of an error that accepted.
            written.deferred = rest
            return written

    def record_noted(
        self, batch: OutcomeBatch, noted: Statement, values: Mapping[str, object], only: Statement | None = None
    ) -> Written | None:
        """Record outcomes and change the program's records of the claims; None if that takes more statements.

        ``only``: a condition without which nothing is written.
        """
        answers = wanted(self.effects, batch) if len(batch.ended) == 1 else self._answers(batch)
        if AFTER in answers or any(claim.place for claim in batch.claims):
            return None
        found = self._send(batch, answers, noted, only, values)
        if not found:
            return None
        result = batch.accepted()
        result.at = found[0][1]
        return result

    @cached_property
    def _picky(self) -> list[int]:
        """The places of the effects that may leave out rows."""
        return [at for at, effect in enumerate(self.effects) if effect.picky]

    def _answers(self, batch: OutcomeBatch) -> tuple[Hashable, ...]:
        """Return what the effects want if no row may be left out."""
        answers = super()._answers(batch)
        for at in self._picky:
            if answers[at] is not None:
                answers = (*answers[:at], AFTER, *answers[at + 1 :])
        return answers

    def _recording(self, further: list[Effect]) -> AbstractContextManager[object]:
        """Return a transaction if further rows are written or woken; else the statement is a transaction by itself."""
        return self._operations.transaction() if further else nullcontext()

    def _write(
        self, batch: OutcomeBatch, answers: tuple[Hashable, ...], *, tells: bool, last: bool
    ) -> tuple[Accepted, list[Stay]]:
        """Write outcomes of one kind and their effects (RECORD); a row is written only while its claim is valid."""
        found = self._send(batch, answers, tells=tells, last=last)
        keys = self._compiler.keys_of(found)
        return (dict(zip(keys, [stay for _, stay in found], strict=True)) if tells else dict.fromkeys(keys)), []

    def _send(
        self,
        batch: OutcomeBatch,
        answers: tuple[Hashable, ...],
        noted: Statement | None = None,
        only: Statement | None = None,
        values: Mapping[str, object] | None = None,
        *,
        tells: bool = False,
        last: bool = False,
    ) -> list[Row]:
        """Send RECORD. ``noted`` changes a program's records by ``done``; ``values`` are for its parameters."""
        operations, source = self._operations, batch.source
        placed = any(claim.place for claim in batch.claims)
        goes_on = source.name if batch.may_go_on else ""
        woken = not (batch.moved or batch.released) and source.woken_by_events
        shape = batch.to, goes_on, woken, placed, tells, _key(noted), _key(only), answers
        statement = self._statements.get(shape)
        if statement is None:
            parts = [AT_CTID] * placed + parts_of(self.effects, batch, answers)
            statement = self._statements[shape] = self._compiled(batch, parts, noted, only, tells=tells)
        given = self._values(batch, answers)
        if placed:
            given["places"] = places_of(batch.claims)
        params = statement.bind(operations.connection, {**given, **values} if values else given)
        picky = any(answers[at] is not None and answers[at] != AFTER for at in self._picky)
        return operations.fetch(statement.text, params, sql.TO_FIRST if picky else sql.BY_KEY, often=True, last=last)

    def _values(self, batch: OutcomeBatch, answers: tuple[Hashable, ...]) -> dict[str, object]:
        """Return the values of a batch. Arrays of equal values are empty: unnest fills them up with null."""
        keys, tokens = self._compiler.claimed(batch.claims)
        values = {
            **self._edge(batch.edge),
            "stored": batch.source.value,
            "keys": keys,
            "claims": tokens,
            "delays": _delays(batch),
            "failed": [outcome.failure is not None for _, outcome in batch.ended] if batch.failed else [],
            "durations": [],
        }
        for effect, answer in zip(self.effects, answers, strict=True):
            if answer is not None and answer != AFTER:
                effect.values(batch, answer, values)
        return values

    def _edge(self, edge: tuple[str, str]) -> dict[str, object]:
        """Return the values of every statement that moves rows along an edge."""
        source, to = edge
        operations = self._operations
        return {"label": operations.label, "source": source, "to": to, "part": operations.part}

    @cached_property
    def _statements(self) -> dict[tuple[Hashable, ...], Statement]:
        return self._compiler.statements_of((type(self), *map(type, self.effects)), self._operations)

    def _compiled(
        self, batch: OutcomeBatch, parts: list[Part], noted: Statement | None, only: Statement | None, *, tells: bool
    ) -> Statement:
        compiler = self._compiler
        names = [name for part in parts for name in part.names]
        kept = ["pk", "claim", "delay", "failed", *(name for part in parts for name in part.kept), *names]
        passed = [f"v.{name}" for name in kept] + [each for part in parts for each in part.passed]
        returned = [each for part in parts for each in part.returned]
        changes = changes_of(self._operations.state_field, batch.outcome, batch.source)
        if noted:
            returned += [f"v.{name}" for name in ("claim", *names[1:])]
            if not batch.moved and not batch.released:
                # Marked ready here: otherwise the next claim would have to do it first, which takes several statements.
                woken = "state_ready OR v.delay <= 0" if batch.source.woken_by_events else "v.delay <= 0"
                changes["state_ready"] = RawSQL(woken, [], output_field=BooleanField())
        return written(
            RECORD,
            table=compiler.table,
            state=compiler.state,
            pk=compiler.pk,
            pk_type=compiler.pk_type,
            arrays=written("".join(part.arrays for part in parts)),
            names="".join(f", {name}" for name in names),
            mine=Statement.of(
                self._found(", ".join(passed), placed=AT_CTID in parts, in_time=noted is not None),
                *(part.before for part in parts),
            ),
            set=Statement.of(compiler.assigned(changes), *(part.set for part in parts)),
            within=compiler.within(self._operations),
            only=Statement.of(
                ALL_OR_NONE if noted else "",
                Statement.of(" AND ", only) if only else "",
                *(part.only for part in parts),
            ),
            returned="".join(f"{each}, " for each in returned),
            further=Statement.of(
                *(part.after for part in parts), Statement.of(",\nnoted AS (", noted, ")") if noted else ""
            ),
            result="pk, statement_timestamp()" if noted else WITH_STAY if tells else "pk",
        )

    def _found(self, passed: str, *, placed: bool, in_time: bool) -> Statement:
        """Return the rows of standing claims, locked, as ``mine``."""
        compiler, pk = self._compiler, self._compiler.pk
        own = {"table": compiler.table, "state": compiler.state, "kept": passed}
        held = written(HELD, **own, within=compiler.within(self._operations, "t"))
        if not placed:
            return written(BY_KEY, name="mine", held=held, pk=pk, condition=IN_TIME if in_time else "")
        others = written(BY_KEY, name="others", held=held, pk=pk, condition=NOT_PLACED)
        return written(AT_PLACES, held=held, pk=pk, others=others)

    def _move(
        self, move: RowsMove, rows: QuerySet[Model], limit: int, changes: columns.Changes
    ) -> tuple[int, list[Pk]]:
        """Move rows without a handler (MOVE), in one statement for any number of them."""
        operations, compiler = self._operations, self._compiler
        answers = wanted(self.effects, move)
        if AFTER in answers:
            return super()._move(move, rows, limit, changes)
        source, to = move.edge
        followed = to in operations.awaited or source in operations.keeping
        tell = followed or signals.transitioned.has_listeners(operations.model)
        # No field of the model has these names.
        also: dict[str, F | RawSQL] = {"stator_entered": F("state_changed"), "stator_place": compiler.place}
        statement = written(
            MOVE, pick=self._pick(rows, limit, **also), table=compiler.table, pk=compiler.pk,
            key=compiler.quote("pk"), set=compiler.assigned(changes), within=compiler.within(operations),
            further=Statement.of(*(part.after for part in parts_of(self.effects, move, answers))),
            result="pk" if tell else "count(*)",
        )  # fmt: skip
        values = {**self._edge(move.edge), "worker": operations.worker_id}
        for effect, answer in zip(self.effects, answers, strict=True):
            if answer is not None:
                effect.values(move, answer, values)
        found = operations.fetch(statement.text, statement.bind(operations.connection, values), sql.BY_KEY)
        pks = compiler.keys_of(found) if tell else []
        return len(pks) if tell else found[0][0], pks


def _key(statement: Statement | None) -> tuple[str, ...]:
    """Return what distinguishes a program's statement: its text, and the names of its values."""
    return (
        (statement.text, *(each.name for each in statement.params if isinstance(each, Placeholder)))
        if statement
        else ()
    )


def _delays(batch: OutcomeBatch) -> list[float | None]:
    """Return after how many seconds the rows are due; null for released rows that are ready, nothing if all are."""
    if batch.moved:
        return []
    if not batch.released:
        return [float(each.delay) for _, each in batch.ended if isinstance(each, Waiting)]
    delays = [each.after or None for _, each in batch.ended if isinstance(each, Released)]
    return delays if any(delays) else []


def changes_of(field: StateField, outcome: Outcome, source: State) -> columns.Changes:
    if isinstance(outcome, Moved):
        return columns.entering(field, outcome.to, {source.name})
    delay = RawSQL("v.delay * interval '1 second'", [], output_field=DurationField())
    if isinstance(outcome, Released):
        # One statement for rows that are ready again, whose delay is null, and rows that are due later.
        due = Coalesce(Now() + delay, F("state_next_attempt"))
        ready = RawSQL("v.delay IS NULL", [], output_field=BooleanField())
        return {**columns.releasing(begun=outcome.begun), "state_ready": ready, "state_next_attempt": due}
    failures = RawSQL("CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END", [])
    return columns.staying(Now() + delay, failures, woken=source.woken_by_events)
