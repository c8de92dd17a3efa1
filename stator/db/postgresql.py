"""Parts for PostgreSQL 14 and later: one statement, and so one transaction, claims rows; one records outcomes."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import BooleanField, DurationField, F, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from stator import signals
from stator.db import records, sql, transactions
from stator.db.claims_postgresql import Claims
from stator.db.compiler import Compiler, places_of
from stator.db.history import error_of, report_of
from stator.db.interface import Batch, Claim, Moves, Operations, Parts, Written
from stator.db.leases import Leases
from stator.db.session import hurried, read_committed, send, session_of, set_limits
from stator.db.values import Params, Pk, Row
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.hooks import AttemptRecords
from stator.rows.waits import wake
from stator.signals import Move
from stator.statements import Statement


class Transactions(transactions.Transactions):
    """Transactions at READ COMMITTED, with limits of their own; statements in one round trip each."""

    def __init__(self, operations: Operations, compiler: Compiler) -> None:
        super().__init__(operations)
        self._compiler = compiler

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a transaction at READ COMMITTED, independent of the default of the database.

        A worker that is stopped or swapped out inside a transaction would keep its locks and block all others; the
        server ends its session instead.
        """
        operations = self._operations
        longest, connection = operations.locks.wait, operations.connection
        if longest is not None and self._is_shared:
            return hurried(connection, super().transaction, longest, session_of(connection).usual["lock_timeout"])
        if connection.in_atomic_block:
            return super().transaction()
        return self._read_committed(idle=operations.settings.LEASE / 2, wait=operations.locks.shortest(wait))

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return the same around a handler. The handler's own statements use the session's planner settings."""
        if self._operations.connection.in_atomic_block:
            return super().transaction()
        return self._read_committed(shared=True)

    def _read_committed(self, **options: Any) -> AbstractContextManager[object]:
        usual = session_of(self._operations.connection).isolation
        return read_committed(self._operations.alias, super().transaction, usual, **options)

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""
        if self._is_shared:
            set_limits(self._operations.connection, wait=self._operations.locks.wait)

    @property
    def _is_shared(self) -> bool:
        """Whether this is in the transaction of a handler."""
        connection: Any = self._operations.connection
        own = connection.in_atomic_block and getattr(connection, "stator_transaction", False)
        return bool(own and connection.stator_shared)

    def fetch(
        self, statement: str, params: Params, planner: str = sql.ANY, *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement, which outside of a transaction is one by itself and takes one round trip.

        ``often``: the same text is sent again and again. ``last``: commit the handler's transaction with it.
        """
        operations = self._operations
        connection: Any = connections[operations.alias]
        if connection.in_atomic_block and not getattr(connection, "stator_transaction", False):
            return send(connection, statement, params)
        session = session_of(connection)
        inside = connection.in_atomic_block
        with nullcontext() if inside or session.isolation == "read committed" else self.transaction():
            restore = inside and connection.stator_shared
            if not inside or restore:
                planner = sql.wait_for_locks(operations.locks.wait) + planner
            return session.send(connection, planner, statement, params, often=often, restore=restore, last=last)

    def lock(
        self,
        rows: QuerySet[Model],
        limit: int,
        *,
        in_order: bool = False,
        among: QuerySet[Model] | None = None,
    ) -> list[Pk]:
        """Lock rows like the portable method, and always by an index."""
        if among is None:
            statement, params = self.pick(rows, limit)
            planner = sql.IN_ORDER if in_order else sql.BY_KEY
            return self._compiler.keys_of(self._operations.fetch(statement, params, planner))
        found = self._lock_among(among[: sql.FIRST_ROWS], rows, limit, sql.IN_ORDER)
        if len(found) < limit:
            found = self._lock_among(among.filter(sought=True), rows, limit, sql.BY_GIN)
        return found

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock claimed rows like the portable method, in one statement that is always the same."""
        arguments = [*self._compiler.claimed(claims), claims[0].state.name]
        found = self._operations.fetch(self._lock_statement, arguments, sql.BY_KEY, often=True)
        mine = set(self._compiler.keys_of(found))
        return [claim for claim in claims if claim.pk in mine]

    @cached_property
    def _lock_statement(self) -> str:
        return sql.lock_claimed(self._compiler.table, self._compiler.pk, self._compiler.pk_type)

    def _lock_among(self, among: QuerySet[Model], rows: QuerySet[Model], limit: int, planner: str) -> list[Pk]:
        operations, compiler = self._operations, self._compiler
        first = among.annotate(place=compiler.place).values("place", "sought")
        statement, params = first.query.get_compiler(operations.alias, elide_empty=False).as_sql()
        # Not by the key: without statistics the planner would read all rows of the queue for each.
        at_place = RawSQL(f"{compiler.table}.ctid = among.place", [], output_field=BooleanField())
        one, arguments = self.pick(rows.order_by().filter(at_place), 1)
        arguments = [*params, *arguments, limit]
        return compiler.keys_of(operations.fetch(sql.lock_among(statement, one), arguments, planner))

    def keep(self, rows: QuerySet[Model]) -> set[Pk]:
        """Lock rows like the portable method, with locks that several workers may share."""
        keys = rows.order_by().values("pk").query
        statement, params = keys.get_compiler(self._operations.alias, elide_empty=False).as_sql()
        to_python = rows.model._meta.pk.to_python
        found = self._operations.fetch(f"{statement} FOR SHARE SKIP LOCKED", list(params))
        return {to_python(pk) for (pk,) in found}

    def pick(self, rows: QuerySet[Model], limit: int, **also: F | RawSQL) -> tuple[str, list[object]]:
        """Return a query that locks rows and gives their keys and what is wanted ``also``, and its parameters."""
        locked = rows.select_for_update(**self._lock_options(skip_locked=True)).values("pk", **also)[:limit]
        # Not elided: for a graph without automatic states, Django knows that nothing is due.
        statement, params = locked.query.get_compiler(using=self._operations.alias, elide_empty=False).as_sql()
        return statement, list(params)


class Records(records.Records):
    """Records by one statement for each kind of outcome."""

    def __init__(self, operations: Operations, compiler: Compiler, transactions: Transactions) -> None:
        super().__init__(operations)
        self._compiler = compiler
        self._transactions = transactions

    def _recording(self, batch: Batch) -> AbstractContextManager[object]:
        """Return a transaction if more than the outcomes is written or others are woken; else the statement is one."""
        return self._operations.transaction() if self._writes_more(batch) else nullcontext()

    def _writes_more(self, batch: Batch) -> bool:
        """Return whether a batch needs more than one statement."""
        return batch.reported or self._writes_other_rows(batch)

    def _writes_other_rows(self, batch: Batch) -> bool:
        """Return whether a batch needs more than one statement, its reports apart."""
        operations = self._operations
        more = operations.recorded and batch.begun and not self._keeps_attempts(batch)
        return bool(more or batch.to in operations.awaited or batch.saves != self._saved_with(batch))

    def record_noted(
        self, batch: Batch, noted: Statement, values: Mapping[str, object], only: Statement | None = None
    ) -> Written | None:
        """Record outcomes and change the program's records of the claims; None if that takes more statements.

        ``only``: a condition without which nothing is written.
        """
        if self._needs_more(batch):
            return None
        connection = self._operations.connection
        condition = (only.text, only.bind(connection, values)) if only else ("", [])
        found = self._fetch(batch, (noted.text, noted.bind(connection, values)), condition)
        if not found:
            return None
        written = batch.accepted()
        written.at = found[0][1]
        return written

    def _needs_more(self, batch: Batch) -> bool:
        """Return whether one statement cannot write a batch with the program's records."""
        reports = batch.reported and (batch.moved or len(batch.ended) > 1 or not self._compiler.keeps_keys)
        tells = batch.moved and self._operations.options.history and not self._kept_with(batch)
        return reports or tells or self._writes_other_rows(batch) or any(map(_place, batch.claims))

    def _write(self, batch: Batch, *, last: bool = False) -> dict[Pk, float | None]:
        """Write outcomes of one kind and their statistics (RECORD); a row only while its own claim stands."""
        found = self._fetch(batch, last=last and not self._writes_more(batch))
        if found and len(found[0]) > 1:
            return dict(zip(self._compiler.keys_of(found), (stay for _, stay in found), strict=True))
        return dict.fromkeys(self._compiler.keys_of(found))

    def _fetch(
        self,
        batch: Batch,
        noted: tuple[str, Params] = ("", ()),
        only: tuple[str, Params] = ("", ()),
        *,
        last: bool = False,
    ) -> list[Row]:
        operations = self._operations
        saved, history, own = self._saved_with(batch), self._kept_with(batch), bool(noted[0])
        tell = batch.moved and operations.options.history and not history
        placed = any(map(_place, batch.claims))
        erred = own and batch.failed and operations.options.history
        make = operations.hooks.attempts if self._keeps_attempts(batch) else None
        attempts = make(operations.worker_id, operations.alias) if make else None
        reported = own and batch.reported
        shape = _Shape(batch.to, saved, placed, history, tell, own, erred, reported, bool(attempts), noted[0], only[0])
        statement, params = self._record_statement(batch, shape, attempts)
        places = [places_of(batch.claims)] if placed else []
        given = self._compiler.saved_arrays(batch) if saved else []
        source = batch.source.name
        arguments = [*self._arrays(batch, history or erred), *places, *given, *[source] * (1 + placed)]
        arguments += [*params, *only[1], source]
        if not batch.released:
            arguments += [operations.label, source, batch.to, self._shard]
        if history:
            arguments += [operations.label, source, batch.to, ""]
        if shape.reported:
            arguments += _reported(batch, erred=erred)
        if attempts:
            arguments += [value for given in self._given(attempts) for value in given.params]
        return operations.fetch(statement, [*arguments, *noted[1]], sql.BY_KEY, often=True, last=last)

    def _kept_with(self, batch: Batch) -> bool:
        """Return whether the recording statement writes the history: of moves, which are many, without errors."""
        return self._operations.options.history and batch.moved and not batch.failed and self._compiler.keeps_keys

    def _keeps_attempts(self, batch: Batch) -> bool:
        """Return whether the recording statement writes the program's records of the attempts: those of moves."""
        operations = self._operations
        made = operations.recorded and operations.hooks.attempts
        if not made or any(claim.notes for claim in batch.claims):
            return False
        return self._kept_with(batch) and batch.saves == self._saved_with(batch)

    def _given(self, attempts: AttemptRecords) -> list[Statement]:
        fields = attempts.model._meta
        return [self._compiler.value(fields.get_field(name), value) for name, value in attempts.given.items()]

    def _insert(self, attempts: AttemptRecords) -> sql.Attempts:
        compiler, model = self._compiler, attempts.model._meta
        own = [compiler.column_of(model.get_field(name)) for name in attempts.names]
        before, after = (
            [compiler.column_of(compiler.field(name)) for name in copied.values()]
            for copied in (attempts.before, attempts.after)
        )
        given = [each.text for each in self._given(attempts)]
        return sql.Attempts(f"{compiler.quote(model.db_table)} ({', '.join(own)})", before, after, given)

    def _saved_with(self, batch: Batch) -> tuple[str, ...]:
        """Return the fields that the recording statement writes as well: all or none."""
        names = batch.saves
        plain = names and not batch.computed and self._compiler.array_types(names)
        return names if plain else ()

    def _saves_at_once(self, batch: Batch) -> bool:
        return bool(self._saved_with(batch))

    def _record_statement(
        self, batch: Batch, shape: "_Shape", attempts: AttemptRecords | None
    ) -> tuple[str, Sequence[object]]:
        if shape not in self._statements:
            compiler, names = self._compiler, shape.saved
            changes = _changes(batch.outcome)
            if shape.own and not batch.moved and not batch.released:
                # Else the next claim would first have to mark the row ready, which takes several statements.
                changes["state_ready"] = RawSQL("v.delay <= 0", [], output_field=BooleanField())
            assigned = compiler.assigned(changes)
            types = compiler.array_types(names) or ()
            columns_of = [compiler.quote(compiler.field(name).column) for name in names]
            statement = sql.record(
                compiler.table, compiler.pk, compiler.pk_type, assigned.text, list(zip(columns_of, types, strict=True)),
                placed=shape.placed, count=not batch.released, tell=shape.tell, reported=shape.reported,
                events=sql.HISTORY if shape.history else sql.ERROR_HISTORY if shape.erred else "",
                noted=shape.noted, only=shape.only, attempts=self._insert(attempts) if attempts else sql.NO_ATTEMPTS,
            )  # fmt: skip
            self._statements[shape] = statement, assigned.params
        return self._statements[shape]

    @cached_property
    def _statements(self) -> dict["_Shape", tuple[str, Sequence[object]]]:
        return {}

    def move_rows(
        self,
        rows: QuerySet[Model],
        source: str,
        to: State,
        limit: int,
        *,
        reason: str = "",
        changes: columns.Changes | None = None,
    ) -> Moves:
        """Move rows without a handler (MOVE), in one statement for any number of them."""
        operations = self._operations
        compiler, history = self._compiler, operations.options.history
        if history and not compiler.keeps_keys:
            return super().move_rows(rows, source, to, limit, reason=reason, changes=changes)
        tell = signals.transitioned.has_listeners(operations.model) or to.name in operations.awaited
        assigned = compiler.assigned(changes or columns.entering(to))
        with operations.transaction():
            # Under names that no field of the model has.
            also: dict[str, F | RawSQL] = {"stator_entered": F("state_changed"), "stator_place": compiler.place}
            pick, arguments = self._transactions.pick(rows, limit, **also)
            statement = sql.move(
                compiler.table, compiler.pk, pick, compiler.quote("pk"), assigned.text, history=history, tell=tell
            )
            worker = [operations.worker_id] if history else []
            counted = [operations.label, source, to.name, self._shard]
            kept = [operations.label, source, to.name, reason] if history else []
            found = operations.fetch(statement, [*arguments, *assigned.params, *worker, *counted, *kept], sql.BY_KEY)
            pks = compiler.keys_of(found) if tell else []
            wake(operations.model, operations.alias, to.name, pks)
        return Moves(len(pks) if tell else found[0][0], [Move(pk, source, to.name) for pk in pks])

    def _arrays(self, batch: Batch, history: bool) -> list[object]:
        # Values that are equal for all are left out: unnest fills shorter arrays up with null.
        return [
            *self._compiler.claimed(batch.claims),
            _delays(batch),
            [outcome.failure is not None for _, outcome in batch.ended] if batch.failed else [],
            [claim.duration for claim in batch.claims] if history else [],
        ]


class _Shape(NamedTuple):
    """What the text of a recording statement depends on.

    ``own``: a program's records are written as well. ``erred``: the history has the error of an attempt. ``attempts``:
    the model's records of attempts are written as well.
    """

    to: str
    saved: tuple[str, ...]
    placed: bool
    history: bool
    tell: bool
    own: bool
    erred: bool
    reported: bool
    attempts: bool
    noted: str
    only: str


def _reported(batch: Batch, *, erred: bool) -> list[object]:
    """Return the parameters of the history and of the report of one outcome that has an error or a reason."""
    [(claim, outcome)] = batch.ended
    label, state = batch.operations.label, batch.source.name
    report: Any = report_of(label, claim, outcome)
    told = [report.error, report.message, report.traceback, report.fingerprint]
    kept = [label, state, *error_of(outcome.failure)] if erred else []
    return [*kept, label, state, *told, report.worker]


def parts_of(operations: Operations) -> Parts:
    """Return the parts of these operations; the leases are the portable ones."""
    compiler = Compiler(operations.model, operations.alias)
    transactions = Transactions(operations, compiler)
    records = Records(operations, compiler, transactions)
    return Parts(transactions, Leases(operations), Claims(operations, compiler), records)


def _delays(batch: Batch) -> list[float | None]:
    """Return after how many seconds the rows are due; null for released rows that are ready, nothing if all are."""
    if batch.moved:
        return []
    if not batch.released:
        return [float(each.delay) for _, each in batch.ended if isinstance(each, Waiting)]
    delays = [each.after or None for _, each in batch.ended if isinstance(each, Released)]
    return delays if any(delays) else []


def _changes(outcome: Outcome) -> columns.Changes:
    if isinstance(outcome, Moved):
        return columns.entering(outcome.to)
    delay = RawSQL("v.delay * interval '1 second'", [], output_field=DurationField())
    if isinstance(outcome, Released):
        # One statement for rows that are ready again, whose delay is null, and rows that are due later.
        due = Coalesce(Now() + delay, F("state_next_attempt"))
        ready = RawSQL("v.delay IS NULL", [], output_field=BooleanField())
        return {**columns.releasing(begun=outcome.begun), "state_ready": ready, "state_next_attempt": due}
    failures = RawSQL("CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END", [])
    return columns.staying(Now() + delay, failures)


_place = attrgetter("place")
