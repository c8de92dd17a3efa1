"""Records of outcomes on PostgreSQL: RECORD and MOVE. ``records`` has the statements for every database.

One statement, and so one transaction, writes outcomes of one kind with their statistics, history and report. Names come
quoted. Rows that somebody else has locked are skipped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import DatabaseError
from django.db.models import BooleanField, DurationField, F, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from stator import signals
from stator.db import records, sql
from stator.db.compiler import Compiler, places_of
from stator.db.history import error_of, logged, report_of
from stator.db.interface import Operations, OutcomeBatch, Written
from stator.db.values import Pk, Row
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.hooks import AttemptRecords
from stator.rows.state_column import StateField
from stator.rows.watches import Watch
from stator.statements import PROGRAM, Parameter, Placeholder, Statement, joined, written

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
    AND {table}.state_claim IS NOT DISTINCT FROM v.claim AND {table}.state = %(source)s{slice}
  RETURNING {table}.{pk} AS pk, v.failed, {returned}{table}.state_changed - v.entered AS stayed){further}
SELECT {result} FROM done
"""

HELD = """
  SELECT {kept}, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN {table} t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %(source)s{slice}"""

BY_KEY = """{name} AS MATERIALIZED ({held} AND t.{pk} = v.pk{condition} FOR NO KEY UPDATE OF t SKIP LOCKED)"""

AT_PLACES = """placed AS MATERIALIZED ({held} AND t.ctid = v.place AND t.{pk} IS NOT DISTINCT FROM v.pk
  FOR NO KEY UPDATE OF t SKIP LOCKED),
{others},
mine AS (SELECT * FROM placed UNION ALL SELECT * FROM others)"""
NOT_PLACED = " AND (SELECT count(*) FROM placed) < (SELECT count(*) FROM v) AND v.pk NOT IN (SELECT pk FROM placed)"

# For claims with records of a program: their leases last, and all of them are written, or none.
IN_TIME = " AND t.state_locked_until > statement_timestamp()"
ALL_OR_NONE = " AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)"

# The objects that wait for all of their rows, each with whether one of its unfinished rows is locked now; the move of
# that row comes after this commit. The rows that are written are still claimed in this snapshot. The range of states
# only repeats the list. The planner does not know it and expects few rows, so it uses the index over both columns, even
# if its statistics are of a table where all rows were unfinished.
HANDED_ON = """
handed{n} AS MATERIALIZED (
  SELECT waiting, (SELECT s.{pk} FROM {table} s WHERE s.{column} = waiting AND s.state = ANY(%(unfinished{n})s)
    AND s.state >= (SELECT min(state) FROM unnest(%(unfinished{n})s::text[]) state)
    AND s.state <= (SELECT max(state) FROM unnest(%(unfinished{n})s::text[]) state)
    AND s.state_claim IS NULL LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL AS is_handed
  FROM (SELECT DISTINCT waiting{n} AS waiting FROM mine WHERE waiting{n} IS NOT NULL) each)"""
IF_HANDED_ON = " AND (v.waiting{n} IS NULL OR v.waiting{n} IN (SELECT waiting FROM handed{n} WHERE is_handed))"

# The columns of the attempt for the history, as they are until the outcome is written.
OF_ATTEMPT = ["t.state_attempts AS attempts", "t.state_attempted AS attempted"]

# The worker that made the claim: its id is the beginning of the token.
WORKER = "left(replace(v.claim::text, '-', ''), 12) AS worker"

# ``stayed`` is the time from one ``state_changed`` to the next: 0 for an attempt after which the object stays.
COUNTED = """
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %(label)s, date_trunc('hour', statement_timestamp(), 'UTC'), %(source)s, %(to)s, %(shard)s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))"""

HISTORY = """
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT %(label)s, pk::text, statement_timestamp(), version, 'move', %(source)s, %(to)s, '', %(reason)s, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)"""

# The history row of an attempt that failed, after which the object stays.
ERROR_HISTORY = """
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, attempts, error, fingerprint)
  SELECT %(label)s, pk::text, statement_timestamp(), version, 'error', %(source)s, '', '', '', worker, attempted,
    duration, attempts, %(history_error)s, %(history_fingerprint)s FROM done)"""

REPORTED = """
reported AS (
  INSERT INTO stator_report AS report (model_label, object_pk, state, at, error, message, traceback, fingerprint,
    times, worker)
  SELECT %(label)s, pk::text, %(source)s, statement_timestamp(), %(error)s, %(message)s, %(traceback)s,
    %(fingerprint)s, 1, %(worker)s FROM done
  ON CONFLICT (model_label, object_pk) DO UPDATE
  SET state = excluded.state, at = excluded.at, error = excluded.error, message = excluded.message,
    traceback = excluded.traceback, fingerprint = excluded.fingerprint, worker = excluded.worker,
    log = NULL, times = CASE WHEN (report.state, report.error, report.message)
      = (excluded.state, excluded.error, excluded.message) THEN report.times + 1 ELSE 1 END)"""

# A program's rows for attempts.
ATTEMPTS = """
attempts AS (INSERT INTO {into} ({columns}) SELECT {values} FROM done)"""

# ``pick`` locks the rows. ``stator_entered`` is their ``state_changed``, and ``stator_place`` their place.
MOVE = """
WITH picked AS MATERIALIZED ({pick}),
done AS (
  UPDATE {table} SET {set} FROM picked
  WHERE {table}.ctid = picked.stator_place AND {table}.{pk} IS NOT DISTINCT FROM picked.{key}{slice}
  RETURNING {table}.{pk} AS pk, {table}.state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    {table}.state_changed - picked.stator_entered AS stayed, %(worker)s AS worker),{further}
SELECT {result} FROM done
"""


class PostgresqlRecords(records.Records):
    """Records by one statement for each kind of outcome."""

    def __init__(self, operations: Operations, compiler: Compiler, pick: Callable[..., Statement]) -> None:
        super().__init__(operations)
        self._compiler = compiler
        # Returns a query that locks rows and gives their keys.
        self._pick = pick

    def _recording(self, batch: OutcomeBatch) -> AbstractContextManager[object]:
        """Return a transaction if further rows are written or woken; else the statement is a transaction by itself."""
        return self._operations.transaction() if self._writes_more(batch) else nullcontext()

    def _writes_more(self, batch: OutcomeBatch) -> bool:
        """Return whether a batch needs more than one statement."""
        return batch.reported or self._writes_other_rows(batch)

    def _writes_other_rows(self, batch: OutcomeBatch) -> bool:
        """Return whether a batch needs more than one statement, its reports apart."""
        return batch.awaited or self._keeps_others(batch)

    def _keeps_others(self, batch: OutcomeBatch) -> bool:
        """Return whether rows of the program, of the history or of steps, or saved values, take further statements."""
        operations = self._operations
        more = operations.recorded and batch.begun and not self._keeps_attempts(batch)
        return bool(more or self._tells(batch) or batch.stepped or batch.saves != self._saved_with(batch))

    def record_batch(self, batch: OutcomeBatch, *, again: bool = False, last: bool = False) -> Written:
        """Record like the portable method; rows that are not the last of others take one statement."""
        watches = self._watches(batch)
        if again or not watches or batch.reported or self._keeps_others(batch):
            return super().record_batch(batch, again=again, last=last)
        accepted = set(self._compiler.keys_of(self._send(batch, watches=watches)))
        rest = [ended for ended in batch.ended if ended[0].pk not in accepted]
        if not accepted or not rest:
            return super().record_batch(batch, last=last) if rest else batch.accepted()
        written = batch.only(accepted).accepted()
        try:
            return Written.total([written, super().record_batch(OutcomeBatch.of(rest), last=last)])
        except DatabaseError:
            if self._operations.connection.in_atomic_block:
                raise
            # What is written is committed. Written again by themselves, the others tell of an error that stays.
            written.deferred = rest
            return written

    def record_noted(
        self, batch: OutcomeBatch, noted: Statement, values: Mapping[str, object], only: Statement | None = None
    ) -> Written | None:
        """Record outcomes and change the program's records of the claims; None if that takes more statements.

        ``only``: a condition without which nothing is written.
        """
        watches = self._watches(batch) if len(batch.ended) == 1 else []
        if self._needs_more(batch, watches):
            return None
        found = self._send(batch, noted, only, values, watches=watches)
        if not found:
            return None
        result = batch.accepted()
        result.at = found[0][1]
        return result

    def _needs_more(self, batch: OutcomeBatch, watches: Sequence[Watch]) -> bool:
        """Return whether one statement cannot write a batch with the program's records, if its row hands on."""
        reports = batch.reported and (batch.moved or len(batch.ended) > 1 or not self._compiler.keeps_keys)
        others = self._keeps_others(batch) if watches else self._writes_other_rows(batch)
        return reports or others or any(map(_place, batch.claims))

    def _watches(self, batch: OutcomeBatch) -> list[Watch]:
        """Return the edges that rows of a batch of outcomes may set off."""
        operations = self._operations
        may = batch.awaited and batch.source.name not in operations.keeping
        return operations.handed_on.get(batch.to, []) if may else []

    def _write(self, batch: OutcomeBatch, *, last: bool = False) -> dict[Pk, float | None]:
        """Write outcomes of one kind and their statistics (RECORD); a row is written only while its claim is valid."""
        found = self._send(batch, last=last and not self._writes_more(batch))
        if found and len(found[0]) > 1:
            return dict(zip(self._compiler.keys_of(found), (stay for _, stay in found), strict=True))
        return dict.fromkeys(self._compiler.keys_of(found))

    def _send(
        self,
        batch: OutcomeBatch,
        noted: Statement | None = None,
        only: Statement | None = None,
        values: Mapping[str, object] | None = None,
        *,
        last: bool = False,
        watches: Sequence[Watch] = (),
    ) -> list[Row]:
        """Send RECORD. ``noted`` changes a program's records by ``done``; ``values`` are for its parameters.

        ``watches``: write only rows that hand on by these edges.
        """
        operations = self._operations
        history = self._kept_with(batch)
        shape = _Shape(
            to=batch.to,
            failed=batch.source.name if batch.may_go_on else "",
            saved=self._saved_with(batch),
            placed=any(map(_place, batch.claims)),
            history=history,
            tell=self._tells(batch),
            erred=noted is not None and batch.failed and operations.options.history,
            reported=noted is not None and batch.reported,
            attempts=self._keeps_attempts(batch),
            noted=_key(noted),
            only=_key(only),
            watched=tuple(watch.key for watch in watches),
            woken=not (batch.moved or batch.released) and batch.source.woken_by_events,
        )
        statement = self._statements.get(shape)
        if statement is None:
            statement = self._statements[shape] = self._compiled(batch, shape, noted, only)
        given = self._values(batch, shape)
        given |= {f"unfinished{n}": list(watch.unfinished) for n, watch in enumerate(watches)}
        params = statement.bind(operations.connection, {**given, **(values or {})})
        planner = sql.TO_FIRST if watches else sql.BY_KEY
        return operations.fetch(statement.text, params, planner, often=True, last=last)

    def _values(self, batch: OutcomeBatch, shape: "_Shape") -> dict[str, object]:
        """Return the values of a batch. Arrays of equal values are empty: unnest fills them up with null."""
        keys, tokens = self._compiler.claimed(batch.claims)
        source, timed = batch.source.name, shape.history or shape.erred
        given: dict[str, object] = {
            **self._edge(source, batch.to),
            "keys": keys,
            "claims": tokens,
            "delays": _delays(batch),
            "failed": [outcome.failure is not None for _, outcome in batch.ended] if batch.failed else [],
            "durations": [claim.duration for claim in batch.claims] if timed else [],
            "reason": "",
        }
        if shape.placed:
            given["places"] = places_of(batch.claims)
        if shape.saved:
            names = ["saves", *(f"value{n}" for n in range(len(shape.saved)))]
            given |= zip(names, self._compiler.saved_arrays(batch), strict=True)
        if shape.reported:
            given |= _reported(batch)
        if attempts := self._attempts() if shape.attempts else None:
            given |= {PROGRAM + name: value for name, value in attempts.given.items()}
        return given

    def _edge(self, source: str, to: str) -> dict[str, object]:
        """Return the values of the statistics row of moves along an edge, its hour apart, and the slice of the rows."""
        operations = self._operations
        return {
            "label": operations.label, "source": source, "to": to, "shard": self.shard(), "slice": operations.slice,
        }  # fmt: skip

    def _kept_with(self, batch: OutcomeBatch) -> bool:
        """Return whether the recording statement writes the history: of moves, which are many, without errors."""
        options = self._operations.options
        if not (options.history and batch.moved and not batch.failed and self._compiler.keeps_keys):
            return False
        return not (options.logs and logged(batch.claims))

    def _tells(self, batch: OutcomeBatch) -> bool:
        """Return whether the recording statement returns the seconds in the state that was left, for the history."""
        return batch.moved and self._operations.options.history and not self._kept_with(batch)

    def _keeps_attempts(self, batch: OutcomeBatch) -> bool:
        """Return whether the recording statement writes the program's records of the attempts: only for moves."""
        operations = self._operations
        made = operations.recorded and operations.hooks.attempts
        if not made or any(claim.notes for claim in batch.claims):
            return False
        return self._kept_with(batch) and batch.saves == self._saved_with(batch)

    def _saved_with(self, batch: OutcomeBatch) -> tuple[str, ...]:
        """Return the fields that the recording statement writes as well: all or none."""
        names = batch.saves
        plain = names and not batch.computed and self._compiler.array_types(names)
        return names if plain else ()

    def _saves_at_once(self, batch: OutcomeBatch) -> bool:
        return bool(self._saved_with(batch))

    @cached_property
    def _statements(self) -> dict["_Shape", Statement]:
        return self._compiler.statements_of(type(self), self._operations)

    def _compiled(
        self, batch: OutcomeBatch, shape: "_Shape", noted: Statement | None, only: Statement | None
    ) -> Statement:
        compiler = self._compiler
        attempts = self._attempts() if shape.attempts else None
        arrays, names, assigned = self._saved(shape)
        history = shape.history or shape.erred
        kept = ["pk", "claim", "delay", "failed", *(["duration"] if history else []), *names]
        passed = [f"v.{name}" for name in kept] + (OF_ATTEMPT if history else []) + _before(compiler, attempts)
        waiting = [compiler.column_of(compiler.field(name)) for name in shape.watched]
        passed += [f"t.{column} AS waiting{n}" for n, column in enumerate(waiting)]
        returned = f"{compiler.table}.state_version AS version, {WORKER}, v.duration, v.attempts, v.attempted, "
        for_notes = [f"v.{name}" for name in ("claim", *names[1:])] if noted else []
        also = "".join(f"{each}, " for each in for_notes + _after(compiler, attempts))
        changes = _changes(batch.operations.state_field, batch.outcome, batch.source)
        if noted and not batch.moved and not batch.released:
            # Marked ready here: otherwise the next claim would have to do it first, which takes several statements.
            ready = "state_ready OR v.delay <= 0" if shape.woken else "v.delay <= 0"
            changes["state_ready"] = RawSQL(ready, [], output_field=BooleanField())
        where = Statement.of(" AND ", only) if only else "" if batch.released else self._if_countable()
        return written(
            RECORD,
            table=compiler.table,
            pk=compiler.pk,
            pk_type=compiler.pk_type,
            arrays=written(arrays),
            names="".join(f", {name}" for name in names),
            mine=Statement.of(self._found(shape, ", ".join(passed)), *self._handed_on(waiting)),
            set=Statement.of(compiler.assigned(changes), assigned),
            slice=compiler.slice_of(self._operations),
            only=Statement.of(ALL_OR_NONE if noted else "", where, *_if_handed_on(waiting)),
            returned=(returned if history else "") + also,
            further=self._further(batch, shape, attempts, noted),
            result=_result(shape),
        )

    def _saved(self, shape: "_Shape") -> tuple[str, list[str], str]:
        """Return the arrays of places and of saved values, their names, and the end of the SET list."""
        compiler, arrays, assigned = self._compiler, "", ""
        names = ["place"] * shape.placed
        if shape.placed:
            arrays += ", %(places)s::tid[]"
        if shape.saved:
            arrays += ", %(saves)s::bool[]"
            names.append("saves")
        for n, (name, kind) in enumerate(zip(shape.saved, compiler.array_types(shape.saved) or (), strict=True)):
            column = compiler.column_of(compiler.field(name))
            arrays += f", %(value{n})s::{kind}[]"
            names.append(f"value{n}")
            assigned += f", {column} = CASE WHEN v.saves THEN v.value{n} ELSE {compiler.table}.{column} END"
        return arrays, names, assigned

    def _found(self, shape: "_Shape", kept: str) -> Statement:
        """Return the rows of standing claims, locked, as ``mine``."""
        table, pk = self._compiler.table, self._compiler.pk
        held = written(HELD, table=table, kept=kept, slice=self._compiler.slice_of(self._operations, "t"))
        if not shape.placed:
            return written(BY_KEY, name="mine", held=held, pk=pk, condition=IN_TIME if shape.noted else "")
        others = written(BY_KEY, name="others", held=held, pk=pk, condition=NOT_PLACED)
        return written(AT_PLACES, held=held, pk=pk, others=others)

    def _handed_on(self, waiting: list[str]) -> Iterator[Statement]:
        """Yield the parts of the WITH that lock an unfinished row for each object that waits, by these columns."""
        names = {"pk": self._compiler.pk, "table": self._compiler.table}
        for n, column in enumerate(waiting):
            yield written(f",{HANDED_ON.replace('{n}', str(n))}", column=column, **names)

    def _further(
        self, batch: OutcomeBatch, shape: "_Shape", attempts: AttemptRecords | None, noted: Statement | None
    ) -> Statement:
        """Return the further parts of the WITH that follow ``done``."""
        parts: list[str | Statement] = []
        if not batch.released:
            parts += [",", self._counting()]
        if shape.history or shape.erred:
            parts += [",", written(HISTORY if shape.history else ERROR_HISTORY)]
        if shape.reported:
            parts += [",", written(REPORTED)]
        if attempts:
            parts += [",", self._inserted(attempts)]
        if noted:
            parts += [",\nnoted AS (", noted, ")"]
        return Statement.of(*parts)

    def _counting(self) -> Statement:
        """Return the part of the WITH that writes the statistics of what is ``done``."""
        return written(COUNTED)

    def _if_countable(self) -> Statement | str:
        """Return a condition for the rows to be written, so that their statistics are too; "" if there is none."""
        return ""

    def _attempts(self) -> AttemptRecords | None:
        make = self._operations.hooks.attempts
        return make(self._operations.worker_id, self._operations.alias) if make else None

    def _inserted(self, attempts: AttemptRecords) -> Statement:
        """Return the INSERT of the program's rows for the attempts, from the rows as they were and as they are."""
        compiler, meta = self._compiler, attempts.model._meta
        copied = [f"before{n}" for n in range(len(attempts.before))] + [f"after{n}" for n in range(len(attempts.after))]
        given = [compiler.value(meta.get_field(name), Parameter(PROGRAM + name, None)) for name in attempts.given]
        return written(
            ATTEMPTS,
            into=compiler.quote(meta.db_table),
            columns=", ".join(compiler.column_of(meta.get_field(name)) for name in attempts.names),
            values=joined([*map(Statement, copied), *given], ", "),
        )

    def _move(
        self, rows: QuerySet[Model], source: str, to: str, limit: int, reason: str, changes: columns.Changes
    ) -> tuple[int, list[Pk]]:
        """Move rows without a handler (MOVE), in one statement for any number of them."""
        operations, compiler = self._operations, self._compiler
        history = operations.options.history
        if history and not compiler.keeps_keys:
            return super()._move(rows, source, to, limit, reason, changes)
        followed = to in operations.awaited or source in operations.keeping
        tell = followed or signals.transitioned.has_listeners(operations.model)
        # No field of the model has these names.
        also: dict[str, F | RawSQL] = {"stator_entered": F("state_changed"), "stator_place": compiler.place}
        statement = written(
            MOVE, pick=self._pick(rows, limit, **also), table=compiler.table, pk=compiler.pk,
            key=compiler.quote("pk"), set=compiler.assigned(changes), slice=compiler.slice_of(operations),
            further=written(f"{COUNTED},{HISTORY}" if history else COUNTED), result="pk" if tell else "count(*)",
        )  # fmt: skip
        values = {**self._edge(source, to), "reason": reason, "worker": operations.worker_id}
        found = operations.fetch(statement.text, statement.bind(operations.connection, values), sql.BY_KEY)
        pks = compiler.keys_of(found) if tell else []
        return len(pks) if tell else found[0][0], pks


class _Shape(NamedTuple):
    """What the text of a recording statement depends on.

    ``failed``: the state that is left, if the visit of it may go on later, or another one goes on.
    ``erred``: the history has the error of an attempt.
    ``attempts``: the model's records of attempts are written as well.
    ``noted``: changes of a program's records of claims; with them, each key is returned with the time.
    ``watched``: the foreign keys to objects that wait for all of their rows.
    ``woken``: an event may have marked the held rows ready.
    ``tell``: each key is returned with the seconds in the state that was left, for a caller that writes the history.
    """

    to: str
    failed: str
    saved: tuple[str, ...]
    placed: bool
    history: bool
    tell: bool
    erred: bool
    reported: bool
    attempts: bool
    noted: tuple[str, ...]
    only: tuple[str, ...]
    watched: tuple[str, ...]
    woken: bool


def _if_handed_on(waiting: list[str]) -> Iterator[str]:
    """Yield the conditions for rows whose object has another unfinished row, if they have one."""
    return (IF_HANDED_ON.replace("{n}", str(n)) for n, _ in enumerate(waiting))


def _key(statement: Statement | None) -> tuple[str, ...]:
    """Return what distinguishes a program's statement: its text, and the names of its values."""
    return (
        (statement.text, *(each.name for each in statement.params if isinstance(each, Placeholder)))
        if statement
        else ()
    )


def _result(shape: _Shape) -> str:
    if shape.noted:
        return "pk, statement_timestamp()"
    return "pk, greatest(date_part('epoch', stayed), 0)" if shape.tell else "pk"


def _before(compiler: Compiler, attempts: AttemptRecords | None) -> list[str]:
    """Return what the found rows pass on to the program's rows for attempts."""
    names = attempts.before.values() if attempts else ()
    return [f"t.{compiler.column_of(compiler.field(name))} AS before{n}" for n, name in enumerate(names)]


def _after(compiler: Compiler, attempts: AttemptRecords | None) -> list[str]:
    """Return what ``done`` has for the program's rows for attempts."""
    if attempts is None:
        return []
    table, after = compiler.table, attempts.after.values()
    now = [f"{table}.{compiler.column_of(compiler.field(name))} AS after{n}" for n, name in enumerate(after)]
    return [f"v.before{n}" for n in range(len(attempts.before))] + now


def _reported(batch: OutcomeBatch) -> dict[str, object]:
    """Return the values of the history and of the report of one outcome that has an error or a reason."""
    [(claim, outcome)] = batch.ended
    report: Any = report_of(batch.operations.label, claim, outcome)
    error, fingerprint = error_of(outcome.failure)
    return {
        "error": report.error, "message": report.message, "traceback": report.traceback,
        "fingerprint": report.fingerprint, "worker": report.worker,
        "history_error": error, "history_fingerprint": fingerprint,
    }  # fmt: skip


def _delays(batch: OutcomeBatch) -> list[float | None]:
    """Return after how many seconds the rows are due; null for released rows that are ready, nothing if all are."""
    if batch.moved:
        return []
    if not batch.released:
        return [float(each.delay) for _, each in batch.ended if isinstance(each, Waiting)]
    delays = [each.after or None for _, each in batch.ended if isinstance(each, Released)]
    return delays if any(delays) else []


def _changes(field: StateField, outcome: Outcome, source: State) -> columns.Changes:
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


_place = attrgetter("place")
