"""Operations for PostgreSQL: one statement, and so one transaction, claims rows; one records outcomes."""

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, DurationField, F, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Now

from stator import signals
from stator.db import sql
from stator.db.batch import (
    RELEASED,
    Ended,
    Moves,
    array_types,
    each_once,
    has_expressions,
    has_reports,
    kind_of,
    names_saved,
    saved_arrays,
)
from stator.db.claim import PLACE, Claim, Crashes
from stator.db.lines import SPARE_VALUES, Turn
from stator.db.loading import load_all
from stator.db.retry import retrying
from stator.db.sessions import hurried, read_committed, send, session_of, set_limits
from stator.db.spelling import Spelled, array_of, places_of
from stator.graph import State
from stator.graph.outcomes import Moved, Released, Waiting
from stator.rows import columns
from stator.rows.indexes import line_of
from stator.rows.waits import wake, wakes
from stator.signals import Move

NO_TOKEN = UUID(int=0)

# How many rows, in the order of an index, are searched for the wanted ones before another index searches all. The
# latter then has to sort the limit's part of a queue at most: 100 of each 5,000.
FIRST_ROWS = 5000


class Operations(Spelled):
    """PostgreSQL 14 and later: one statement to claim, one to record."""

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

    def _recording(self, group: list[Ended]) -> AbstractContextManager[Any]:
        """Return a transaction if reports are written or others woken as well; else the statement is one by itself."""
        more = wakes(self.model, kind_of(group[0])[1]) or has_reports(group)
        more = more or bool(names_saved(group) and not self._saved_here(group))
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
        open_to_me = self.open_to_me()
        in_turns_of_some = open_to_me and self.options.fair_by
        if self.waits or self.model._meta.parents or (self.pauses and self.pauses.partial) or in_turns_of_some:
            # Such models have columns in several tables or conditions on other tables: claim first, then load.
            return super()._claim_rows(states, limit, token, crashes)
        names = [state.name for state in states]
        turn = self.lines.next(states) if crashes is Crashes.NONE else None
        if open_to_me:
            return self._claim_open(states, limit, token, turn, crashes)
        if turn and self.options.fair_by:
            return self._claim_shares(names, limit, token, turn)
        if turn is None:
            least, most = self._bounds[crashes]
            params = [names, least, most, limit, *self._claim_params(token)]
            return self._instances(self.fetch(self._claim_crashed, params, sql.BY_KEY))
        return self._claim_further(names, limit, token, turn)

    def _claim_further(self, names: list[str], limit: int, token: UUID, turn: Turn) -> list[Any]:
        """Claim from where the last claim ended if the order is by age, else from the head of the line."""
        by_age = turn.by_age or not self.options.priority
        began = time.monotonic()
        place = turn.begin(began) if by_age else None
        params = [names, self.settings.MAX_CRASHES, *(place or ()), limit, *self._claim_params(token)]
        statement = self._claim_statements[by_age, place is not None]
        if placed := turn.strained:
            statement += f", {self._table}.ctid"
        found = self._instances(self.fetch(statement, params, sql.BY_LINE, often=True), turn, placed=placed)
        if place and not found:
            # All ready rows are before that place.
            turn.place = None
            return self._claim_further(names, limit, token, turn)
        if by_age:
            last = found[-1] if len(found) == limit else None
            turn.end(last and self._place_in_line(last), began, time.monotonic())
        return found

    def _place_in_line(self, instance: Any) -> tuple[datetime, Any]:
        [key] = self._sent([instance.pk])
        return instance.state_next_attempt or instance.state_changed, key

    @cached_property
    def _bounds(self) -> dict[Crashes, tuple[int, int]]:
        """The range of lost leases: from the first number up to, but excluding, the second."""
        alone_from = self.settings.alone_from
        return {Crashes.FEW: (1, alone_from), Crashes.MANY: (alone_from, self.settings.MAX_CRASHES)}

    def _claim_open(
        self, states: list[State], limit: int, token: UUID, turn: Turn | None, crashes: Crashes
    ) -> list[Any]:
        """Claim among the rows that are open to this worker, picked by a query that is built anew each time."""
        by_age = turn is None or turn.by_age
        rows = self.open_rows(states).filter(self.crashed(crashes))
        ordered = rows.order_by(*line_of(self.model, by_age=by_age)).values("pk")[:limit]
        # Without Django's lock, which requires a transaction block; this statement is a transaction by itself.
        pick, params = ordered.query.get_compiler(using=self.alias, elide_empty=False).as_sql()
        of = "" if "." in self.model._meta.db_table else f"OF {self._table}"
        statement = sql.claim_picked(self._table, self._pk, pick, self._quote("pk"), of, *self._claim_parts)
        return self._instances(self.fetch(statement, [*params, *self._claim_params(token)], sql.IN_ORDER), turn)

    def _claim_shares(self, names: list[str], limit: int, token: UUID, turn: Turn) -> list[Any]:
        """Claim in turns: an equal share for each value of ``fair_by``."""
        params = sql.share_params(names, turn.last, limit, limit + SPARE_VALUES)
        found = self.fetch(self._share_statements[turn.by_age], [*params, *self._claim_params(token)], sql.BY_KEY)
        if found:
            turn.last = max(found, key=_number_of_turn)[self._fields.index(self._field(self.options.fair_by))]
        return self._instances([row[:-1] for row in found], turn)

    @cached_property
    def _claim_statements(self) -> dict[tuple[bool, bool], str]:
        """Claim statements by whether rows are claimed by age, and whether from further on."""
        kinds = [(False, False), (True, False), (True, True)]
        parts = self._table, self._pk, *self._claim_parts
        return {(by_age, further): sql.claim(*parts, self._first(by_age), further=further) for by_age, further in kinds}

    @cached_property
    def _claim_crashed(self) -> str:
        return sql.claim(self._table, self._pk, *self._claim_parts, crashed=True)

    @cached_property
    def _share_statements(self) -> list[str]:
        key = self._field(self.options.fair_by)
        collation = key.db_parameters(self.connection).get("collation")
        key_type = key.rel_db_type(self.connection) + (f" COLLATE {self._quote(collation)}" if collation else "")
        parts = self._table, self._pk, self._quote(key.column), key_type, *self._claim_parts
        return [sql.claim_shares(*parts, self._first(by_age)) for by_age in (False, True)]

    @cached_property
    def _claim_parts(self) -> tuple[str, str]:
        assignments, _ = self._claiming
        return assignments, ", ".join(f"{self._table}.{self._quote(field.column)}" for field in self._fields)

    def _first(self, by_age: bool) -> str:
        if by_age or not self.options.priority:
            return ""
        return f"{self._table}.{self._quote(self._field(self.options.priority).column)}, "

    def _field(self, name: str | None) -> Any:
        return self.model._meta.get_field(name)

    @cached_property
    def _claiming(self) -> tuple[str, Any]:
        """The SET list of a claim and its parameters, with ``NO_TOKEN`` for the claim's token."""
        return self._assignments(columns.claiming_due(NO_TOKEN, self._lease_end()))

    def _claim_params(self, token: UUID) -> list[Any]:
        return [token if param == NO_TOKEN else param for param in self._claiming[1]]

    def _instances(self, rows: list[Any], turn: Turn | None = None, *, placed: bool = False) -> list[Any]:
        """Return the instances of claimed rows. ``placed``: the last column is a row's place, for the record.

        Otherwise the record uses the index of the keys; PostgreSQL removes dead versions that it meets there.
        """
        # From rows that were marked ready too early, the claim only removed the mark.
        rows = [row for row in rows if row[self._claim_at] is not None]
        rows = self._in_turn(rows, by_age=turn is None or turn.by_age)
        cells = [row[:-1] for row in rows] if placed else rows
        instances = load_all(self.model, self.connection, self._names, cells, self._converters)
        if placed:
            for instance, row in zip(instances, rows, strict=True):
                instance.__dict__[PLACE] = row[-1]
        return instances

    def _write(self, state: State, to: str, group: list[Ended]) -> dict[Any, float | None]:
        """Write outcomes of one kind and their statistics (RECORD); a row only while its own claim stands."""
        saved = self._saved_here(group)
        moved = bool(to and to != RELEASED and self.options.history)
        history = moved and self._keeps_moves(group)
        tell = moved and not history
        placed = any(claim.place for claim, _ in group)
        statement, params = self._record_statement(group[0][1], saved, placed, history, tell)
        places = [places_of([claim for claim, _ in group])] if placed else []
        values = saved_arrays(self.model, self.connection, group, saved) if saved else []
        arguments = [*self._arrays(group), *places, *values, *[state.name] * (1 + placed), *params, state.name]
        if to != RELEASED:
            arguments += [self.label, state.name, to, self.shard]
        if history:
            arguments += [self.label, state.name, to, "", self.worker_id]
        found = self.fetch(statement, arguments, sql.BY_KEY, often=True)
        if tell:
            return dict(zip(self._keys(found), (stay for _, stay in found), strict=True))
        return dict.fromkeys(self._keys(found))

    def _keeps_moves(self, group: list[Ended]) -> bool:
        """Return True unless an error caused the moves: errors have texts and are rare, moves are many."""
        return self._keeps_keys and all(outcome.failure is None for outcome in each_once(group))

    def _saved_here(self, group: list[Ended]) -> tuple[str, ...]:
        """Return the fields that the recording statement writes as well; others take a statement for each object."""
        names = names_saved(group)
        plain = names and array_types(self.model, self.connection, names) and not has_expressions(group)
        return names if plain else ()

    def _save(self, group: list[Ended], kept: list[Ended]) -> None:
        if not self._saved_here(group):
            super()._save(group, kept)

    def _record_statement(
        self, outcome: Any, names: tuple[str, ...], placed: bool, history: bool, tell: bool
    ) -> tuple[str, Any]:
        key = (type(outcome), outcome.to if isinstance(outcome, Moved) else None, names, placed, history, tell)
        if key not in self._statements:
            assignments, params = self._assignments(_changes(outcome))
            types = array_types(self.model, self.connection, names) or ()
            saved = [(self._quote(self._field(name).column), kind) for name, kind in zip(names, types, strict=True)]
            statement = sql.record(
                self._table, self._pk, self._pk_type, assignments, saved,
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
        if self.options.history and not self._keeps_keys:
            return super().move_rows(rows, source, to, limit, reason=reason)
        tell = signals.transitioned.has_listeners(self.model) or wakes(self.model, to.name)
        assignments, params = self._assignments(columns.entering(to))
        with self.transaction():
            # Under names that no field of the model has.
            pick, arguments = self._pick(rows, limit, stator_entered=F("state_changed"), stator_place=self._place)
            statement = sql.move(
                self._table, self._pk, pick, self._quote("pk"), assignments, history=self.options.history, tell=tell
            )
            kept = [self.label, source, to.name, reason, self.worker_id] if self.options.history else []
            counted = [self.label, source, to.name, self.shard]
            found = self.fetch(statement, [*arguments, *params, *counted, *kept], sql.BY_KEY)
            pks = self._keys(found) if tell else []
            wake(self.model, self.alias, to.name, pks)
        return Moves(len(pks) if tell else found[0][0], [Move(pk, source, to.name) for pk in pks])

    def lock(
        self, rows: QuerySet[Any], limit: int, *, in_order: bool = False, among: QuerySet[Any] | None = None
    ) -> list[Any]:
        """Lock rows like the portable method, by an index whatever the planner prefers."""
        if among is None:
            return self._keys(self.fetch(*self._pick(rows, limit), sql.IN_ORDER if in_order else sql.BY_KEY))
        found = self._lock_among(among[:FIRST_ROWS], rows, limit, sql.IN_ORDER)
        if len(found) < limit:
            found = self._lock_among(among.filter(sought=True), rows, limit, sql.BY_GIN)
        return found

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock claimed rows like the portable method, in one statement that is always the same."""
        arguments = [*self._claimed(claims), claims[0].state.name]
        found = self.fetch(self._lock_statement, arguments, sql.BY_KEY, often=True)
        mine = set(self._keys(found))
        return [claim for claim in claims if claim.pk in mine]

    @cached_property
    def _lock_statement(self) -> str:
        return sql.lock_claimed(self._table, self._pk, self._pk_type)

    def _lock_among(self, among: QuerySet[Any], rows: QuerySet[Any], limit: int, planner: str) -> list[Any]:
        first = among.annotate(place=self._place).values("place", "sought")
        statement, params = first.query.get_compiler(self.alias, elide_empty=False).as_sql()
        # Not by the key: without statistics the planner would read all rows of the queue for each.
        at_place = RawSQL(f"{self._table}.ctid = among.place", [], output_field=BooleanField())
        one, arguments = self._pick(rows.order_by().filter(at_place), 1)
        return self._keys(self.fetch(sql.lock_among(statement, one), [*params, *arguments, limit], planner))

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

    def _arrays(self, group: list[Ended]) -> list[list[Any]]:
        waiting, claims = isinstance(group[0][1], Waiting), [claim for claim, _ in group]
        return [
            *self._claimed(claims),
            # Values that are equal for all are left out: unnest fills shorter arrays up with null.
            [float(each.delay) for _, each in group if isinstance(each, Waiting)] if waiting else _afters(group),
            [] if self._keeps_moves(group) else [getattr(each, "failure", None) is not None for _, each in group],
            [claim.duration for claim in claims] if self.options.history else [],
        ]

    def _claimed(self, claims: list[Claim]) -> list[Any]:
        """Return the keys of rows and the tokens of their claims, as arrays."""
        return [array_of(self._sent([claim.pk for claim in claims])), array_of([claim.token for claim in claims])]


def _afters(group: list[Ended]) -> list[float | None]:
    """Return the delays of released rows in seconds, null for rows that are ready; nothing if all are ready."""
    afters = [outcome.after or None for _, outcome in group if isinstance(outcome, Released)]
    return afters if any(afters) else []


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


_number_of_turn = itemgetter(-1)
