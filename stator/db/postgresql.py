"""Operations for PostgreSQL: one statement, and so one transaction, claims rows; one records outcomes."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import BooleanField, DurationField, F, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Now

from stator import signals
from stator.conf import Settings
from stator.db import base, sql
from stator.db.batch import Batch, Moves
from stator.db.claim import Claim, Crashes
from stator.db.compiler import Compiler, places_of
from stator.db.ordering import Turn
from stator.db.retry import retrying
from stator.db.session import hurried, read_committed, send, session_of, set_limits
from stator.db.strategies import Strategy, Wanted, strategy_for
from stator.graph import State
from stator.graph.outcomes import Moved, Released, Waiting
from stator.rows import columns
from stator.rows.waits import wake, wakes
from stator.signals import Move

Known = TypeVar("Known", bound=Strategy)

# How many rows, in the order of an index, are searched for the wanted ones before another index searches all. The
# latter then has to sort the limit's part of a queue at most: 100 of each 5,000.
FIRST_ROWS = 5000


class Operations(base.Operations):
    """PostgreSQL 14 and later: one statement to claim, one to record."""

    def __init__(self, model: Any, alias: str, settings: Settings, worker_id: str) -> None:
        super().__init__(model, alias, settings, worker_id)
        self.compiler = Compiler(model, alias)
        self._strategies: dict[type[Strategy], Any] = {}

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[Any]:
        """Return a transaction at READ COMMITTED, whatever the default of the database is.

        A worker that is stopped or swapped out inside a transaction would keep its locks and block all others; the
        server ends its session instead.
        """
        longest, connection = self.locks.wait, self.connection
        if longest is not None and self._is_shared:
            return hurried(connection, super().transaction, longest, session_of(connection).usual["lock_timeout"])
        if connection.in_atomic_block:
            return super().transaction()
        return self._read_committed(idle=self.settings.LEASE / 2, wait=self.locks.shortest(wait))

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """Return the same around a handler. The handler's own statements use the session's planner settings."""
        return super().transaction() if self.connection.in_atomic_block else self._read_committed(shared=True)

    def _read_committed(self, **options: Any) -> AbstractContextManager[Any]:
        return read_committed(self.alias, super().transaction, session_of(self.connection).isolation, **options)

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""
        if self._is_shared:
            set_limits(self.connection, wait=self.locks.wait)

    @property
    def _is_shared(self) -> bool:
        """Whether this is in the transaction of a handler."""
        own = self.connection.in_atomic_block and getattr(self.connection, "stator_transaction", False)
        return bool(own and self.connection.stator_shared)

    def _recording(self, batch: Batch) -> AbstractContextManager[Any]:
        """Return a transaction if reports are written or others woken as well; else the statement is one by itself."""
        more = batch.reported or wakes(self.model, batch.to) or batch.saves != self._saved_with(batch)
        return self.transaction() if more else nullcontext()

    def fetch(self, statement: str, params: list[Any], planner: str = sql.ANY, *, often: bool = False) -> list[Any]:
        """Return the rows of one statement, which outside of a transaction is one by itself and takes one round trip.

        ``often``: the same text is sent again and again.
        """
        connection = self.connection
        if connection.in_atomic_block and not getattr(connection, "stator_transaction", False):
            return send(connection, statement, params)
        session = session_of(connection)
        inside = connection.in_atomic_block
        with nullcontext() if inside or session.isolation == "read committed" else self.transaction():
            restore = inside and connection.stator_shared
            if not inside or restore:
                planner = sql.wait_for_locks(self.locks.wait) + planner
            return session.send(connection, planner, statement, params, often=often, restore=restore)

    def _claim_rows(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Any]:
        kind = strategy_for(self, crashes)
        if kind is None:
            return super()._claim_rows(states, limit, token, crashes)
        turn = self.lines.next(states) if crashes is Crashes.NONE else Turn()
        return self.strategy(kind).claim(Wanted(states, limit, token, crashes, turn))

    def strategy(self, kind: type[Known]) -> Known:
        """Return the strategy of this type, which keeps its statements."""
        if kind not in self._strategies:
            self._strategies[kind] = kind(self)
        known: Known = self._strategies[kind]
        return known

    def _write(self, batch: Batch) -> dict[Any, float | None]:
        """Write outcomes of one kind and their statistics (RECORD); a row only while its own claim stands."""
        saved, history = self._saved_with(batch), self._kept_with(batch)
        tell = batch.moved and self.options.history and not history
        placed = any(map(_place, batch.claims))
        statement, params = self._record_statement(batch.outcome, saved, placed, history, tell)
        places = [places_of(batch.claims)] if placed else []
        values = self.compiler.saved_arrays(batch) if saved else []
        source = batch.source.name
        arguments = [*self._arrays(batch, history), *places, *values, *[source] * (1 + placed), *params, source]
        if not batch.released:
            arguments += [self.label, source, batch.to, self.shard]
        if history:
            arguments += [self.label, source, batch.to, "", self.worker_id]
        found = self.fetch(statement, arguments, sql.BY_KEY, often=True)
        if tell:
            return dict(zip(self.compiler.keys_of(found), (stay for _, stay in found), strict=True))
        return dict.fromkeys(self.compiler.keys_of(found))

    def _kept_with(self, batch: Batch) -> bool:
        """Return whether the recording statement writes the history: of moves, which are many, without errors."""
        return self.options.history and batch.moved and not batch.failed and self.compiler.keeps_keys

    def _keeps_apart(self, batch: Batch) -> bool:
        return super()._keeps_apart(batch) and not self._kept_with(batch)

    def _saved_with(self, batch: Batch) -> tuple[str, ...]:
        """Return the fields that the recording statement writes as well: all or none."""
        names = batch.saves
        plain = names and not batch.computed and self.compiler.array_types(names)
        return names if plain else ()

    def _save(self, kept: Batch) -> None:
        if not self._saved_with(kept):
            super()._save(kept)

    def _record_statement(
        self, outcome: Any, names: tuple[str, ...], placed: bool, history: bool, tell: bool
    ) -> tuple[str, Any]:
        key = (type(outcome), outcome.to if isinstance(outcome, Moved) else None, names, placed, history, tell)
        if key not in self._statements:
            compiler = self.compiler
            assignments, params = compiler.assignments(_changes(outcome))
            types = compiler.array_types(names) or ()
            columns_of = [compiler.quote(compiler.field(name).column) for name in names]
            statement = sql.record(
                compiler.table, compiler.pk, compiler.pk_type, assignments, list(zip(columns_of, types, strict=True)),
                placed=placed, count=not isinstance(outcome, Released), history=history, tell=tell,
            )  # fmt: skip
            self._statements[key] = statement, params
        return self._statements[key]

    @cached_property
    def _statements(self) -> dict[Any, tuple[str, Any]]:
        return {}

    @retrying
    def move_rows(self, rows: QuerySet[Any], source: str, to: State, limit: int, *, reason: str = "") -> Moves:
        """Move rows without a handler (MOVE), in one statement whatever their number."""
        compiler, history = self.compiler, self.options.history
        if history and not compiler.keeps_keys:
            return super().move_rows(rows, source, to, limit, reason=reason)
        tell = signals.transitioned.has_listeners(self.model) or wakes(self.model, to.name)
        assignments, params = compiler.assignments(columns.entering(to))
        with self.transaction():
            # Under names that no field of the model has.
            pick, arguments = self._pick(rows, limit, stator_entered=F("state_changed"), stator_place=compiler.place)
            statement = sql.move(
                compiler.table, compiler.pk, pick, compiler.quote("pk"), assignments, history=history, tell=tell
            )
            kept = [self.label, source, to.name, reason, self.worker_id] if history else []
            counted = [self.label, source, to.name, self.shard]
            found = self.fetch(statement, [*arguments, *params, *counted, *kept], sql.BY_KEY)
            pks = compiler.keys_of(found) if tell else []
            wake(self.model, self.alias, to.name, pks)
        return Moves(len(pks) if tell else found[0][0], [Move(pk, source, to.name) for pk in pks])

    def lock(
        self, rows: QuerySet[Any], limit: int, *, in_order: bool = False, among: QuerySet[Any] | None = None
    ) -> list[Any]:
        """Lock rows like the portable method, by an index whatever the planner prefers."""
        if among is None:
            return self.compiler.keys_of(self.fetch(*self._pick(rows, limit), sql.IN_ORDER if in_order else sql.BY_KEY))
        found = self._lock_among(among[:FIRST_ROWS], rows, limit, sql.IN_ORDER)
        if len(found) < limit:
            found = self._lock_among(among.filter(sought=True), rows, limit, sql.BY_GIN)
        return found

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock claimed rows like the portable method, in one statement that is always the same."""
        arguments = [*self.compiler.claimed(claims), claims[0].state.name]
        found = self.fetch(self._lock_statement, arguments, sql.BY_KEY, often=True)
        mine = set(self.compiler.keys_of(found))
        return [claim for claim in claims if claim.pk in mine]

    @cached_property
    def _lock_statement(self) -> str:
        return sql.lock_claimed(self.compiler.table, self.compiler.pk, self.compiler.pk_type)

    def _lock_among(self, among: QuerySet[Any], rows: QuerySet[Any], limit: int, planner: str) -> list[Any]:
        first = among.annotate(place=self.compiler.place).values("place", "sought")
        statement, params = first.query.get_compiler(self.alias, elide_empty=False).as_sql()
        # Not by the key: without statistics the planner would read all rows of the queue for each.
        at_place = RawSQL(f"{self.compiler.table}.ctid = among.place", [], output_field=BooleanField())
        one, arguments = self._pick(rows.order_by().filter(at_place), 1)
        return self.compiler.keys_of(self.fetch(sql.lock_among(statement, one), [*params, *arguments, limit], planner))

    def keep(self, rows: QuerySet[Any]) -> set[Any]:
        """Lock rows like the portable method, with locks that several workers may share."""
        statement, params = rows.order_by().values("pk").query.get_compiler(self.alias, elide_empty=False).as_sql()
        to_python = rows.model._meta.pk.to_python
        return {to_python(pk) for (pk,) in self.fetch(f"{statement} FOR SHARE SKIP LOCKED", list(params))}

    def _pick(self, rows: QuerySet[Any], limit: int, **also: Any) -> tuple[str, list[Any]]:
        locked = rows.select_for_update(**self._lock_options(skip_locked=True)).values("pk", **also)[:limit]
        # Not elided: for a graph without automatic states, Django knows that nothing is due.
        statement, params = locked.query.get_compiler(using=self.alias, elide_empty=False).as_sql()
        return statement, list(params)

    def _arrays(self, batch: Batch, history: bool) -> list[Any]:
        # Values that are equal for all are left out: unnest fills shorter arrays up with null.
        return [
            *self.compiler.claimed(batch.claims),
            _delays(batch),
            [outcome.failure is not None for _, outcome in batch.ended] if batch.failed else [],
            [claim.duration for claim in batch.claims] if history else [],
        ]


def _delays(batch: Batch) -> list[float | None]:
    """Return after how many seconds the rows are due; null for released rows that are ready, nothing if all are."""
    if batch.moved:
        return []
    if not batch.released:
        return [float(each.delay) for _, each in batch.ended if isinstance(each, Waiting)]
    delays = [each.after or None for _, each in batch.ended if isinstance(each, Released)]
    return delays if any(delays) else []


def _changes(outcome: Any) -> columns.Changes:
    if isinstance(outcome, Moved):
        return columns.entering(outcome.to)
    delay = RawSQL("v.delay * interval '1 second'", [], output_field=DurationField())
    if isinstance(outcome, Released):
        # One statement for rows that are ready again, whose delay is null, and rows that are due later.
        due = Coalesce(Now() + delay, F("state_next_attempt"))
        ready = RawSQL("v.delay IS NULL", [], output_field=BooleanField())
        return {**columns.releasing(), "state_ready": ready, "state_next_attempt": due}
    failures = RawSQL("CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END", [])
    return columns.staying(Now() + delay, failures)


_place = attrgetter("place")
