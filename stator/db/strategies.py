"""Ways to claim ready rows with one statement on PostgreSQL, and the choice among them.

If none of them fits, the portable statements do it: rows are picked and locked first, then claimed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from uuid import UUID

from django.db.models import Field, Q

from stator.db import sql
from stator.db.compiler import Compiler
from stator.db.instances import load_all
from stator.db.interface import PLACE, Operations
from stator.db.ordering import SPARE_VALUES, Turn
from stator.db.rows import Crashes
from stator.db.values import Instance, Row
from stator.graph import State
from stator.rows import columns
from stator.rows.indexes import line_of

NO_TOKEN = UUID(int=0)

# The most statements that are kept of one model with a condition of its own: one for each limit, and so on.
MOST_CACHED = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows to claim: up to ``limit`` in ``states``. Rows that lost leases have a new ``turn``, which is by age."""

    states: list[State]
    limit: int
    token: UUID
    crashes: Crashes
    turn: Turn

    @property
    def names(self) -> list[str]:
        """The names of the states."""
        return [state.name for state in self.states]


class Strategy:
    """One way to claim rows of a model."""

    def __init__(self, operations: Operations, compiler: Compiler) -> None:
        self._operations = operations
        self._compiler = compiler

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows and return their instances in the order of their turn."""
        raise NotImplementedError

    @cached_property
    def _parts(self) -> tuple[str, str, str, str]:
        """The table, its key, the SET list and the returned columns."""
        compiler = self._compiler
        return compiler.table, compiler.pk, self._changes[0], compiler.columns

    @cached_property
    def _changes(self) -> tuple[str, Sequence[object]]:
        """The SET list and its parameters, with ``NO_TOKEN`` for the claim's token."""
        return self._compiler.assignments(columns.claiming_due(NO_TOKEN, self._operations.lease_end()))

    def _params(self, token: UUID) -> list[object]:
        return [token if param == NO_TOKEN else param for param in self._changes[1]]

    def _instances(self, rows: list[Row], turn: Turn | None = None, *, placed: bool = False) -> list[Instance]:
        """Return the instances of claimed rows, in their order or that of a turn.

        ``placed``: the last column is a row's place, for the record.

        Otherwise the record uses the index of the keys; PostgreSQL removes dead versions that it meets there.
        """
        # From rows that were marked ready too early, the claim only removed the mark.
        compiler, claim_at = self._compiler, self._compiler.claim_at
        rows = [row for row in rows if row[claim_at] is not None]
        rows = compiler.in_turn(rows, by_age=turn.by_age) if turn else rows
        cells = [row[:-1] for row in rows] if placed else rows
        instances = load_all(compiler.model, compiler.connection, compiler.names, cells, compiler.converters)
        if placed:
            for instance, row in zip(instances, rows, strict=True):
                instance.__dict__[PLACE] = row[-1]
        return instances


class InLine(Strategy):
    """By priority or by age: what most models use. By age, a claim begins where the last one ended."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows from a place in the line, and from its head if there are none."""
        operations, turn = self._operations, wanted.turn
        by_age = turn.by_age or not operations.options.priority
        began = time.monotonic()
        place = turn.begin(began) if by_age else None
        most_crashes = operations.settings.MAX_CRASHES
        params = [wanted.names, most_crashes, *(place or ()), wanted.limit, *self._params(wanted.token)]
        statement = self.statements[by_age, place is not None]
        if placed := turn.strained:
            statement += f", {self._compiler.table}.ctid"
        found = self._instances(operations.fetch(statement, params, sql.BY_LINE, often=True), turn, placed=placed)
        if place and not found:
            # All ready rows are before that place.
            turn.place = None
            return self.claim(wanted)
        if by_age:
            last = found[-1] if len(found) == wanted.limit else None
            turn.end(self._place_in_line(last) if last else None, began, time.monotonic())
        return found

    @cached_property
    def statements(self) -> dict[tuple[bool, bool], str]:
        """The statements by whether rows are claimed by age, and whether from a place further on."""
        kinds = [(False, False), (True, False), (True, True)]
        first = self._compiler.priority
        return {
            (by_age, further): sql.claim(*self._parts, "" if by_age else first, further=further)
            for by_age, further in kinds
        }

    def _place_in_line(self, instance: Instance) -> tuple[datetime, object]:
        [key] = self._compiler.sent([instance.pk])
        return instance.state_next_attempt or instance.state_changed, key


class InShares(Strategy):
    """With ``fair_by``: each of its values in turn gets an equal share."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows of the values that come next."""
        compiler, turn = self._compiler, wanted.turn
        params = sql.share_params(wanted.names, turn.last, wanted.limit, wanted.limit + SPARE_VALUES)
        arguments = [*params, *self._params(wanted.token)]
        found = self._operations.fetch(self.statements[turn.by_age], arguments, sql.BY_KEY)
        if found:
            turn.last = max(found, key=_number_of_turn)[compiler.fields.index(self._key)]
        return self._instances([row[:-1] for row in found], turn)

    @cached_property
    def statements(self) -> list[str]:
        """The statements by priority and by age."""
        compiler, key = self._compiler, self._key
        collation = key.db_parameters(compiler.connection).get("collation")
        key_type = str(key.rel_db_type(compiler.connection))
        if collation:
            key_type += f" COLLATE {compiler.quote(collation)}"
        table, pk, assignments, returning = self._parts
        parts = table, pk, compiler.quote(key.column), key_type, assignments, returning
        return [sql.claim_shares(*parts, first) for first in (compiler.priority, "")]

    @property
    def _key(self) -> Field:
        return self._compiler.field(self._operations.options.fair_by)


class Open(Strategy):
    """If the model has a condition for which worker may claim which rows, or the database refused some to this one."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows that a query picks."""
        statement, params = self._statement(wanted)
        found = self._operations.fetch(statement, [*params, *self._params(wanted.token)], sql.IN_ORDER)
        return self._instances([row[:-1] for row in sorted(found, key=_number_of_turn)])

    def _statement(self, wanted: Wanted) -> tuple[str, Sequence[object]]:
        """Return the statement and its parameters; kept while the model returns the same condition."""
        condition, pauses = self._operations.open_to_me(), self._operations.pauses
        states = pauses.running(wanted.states) if pauses else wanted.states
        key = (id(condition), wanted.limit, wanted.crashes, wanted.turn.by_age, tuple(state.name for state in states))
        kept = self._cache.get(key)
        if kept is None or kept[0] is not condition:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            kept = self._cache[key] = condition, *self._compiled(wanted, condition)
        return kept[1:]

    def _compiled(self, wanted: Wanted, condition: Q) -> tuple[str, Sequence[object]]:
        operations, compiler = self._operations, self._compiler
        rows = operations.claimable(wanted.states).filter(condition).filter(operations.crashed(wanted.crashes))
        ordered = rows.order_by(*line_of(compiler.model, by_age=wanted.turn.by_age)).values("pk")[: wanted.limit]
        # Without Django's lock, which requires a transaction block; this statement is a transaction by itself.
        pick, params = ordered.query.get_compiler(using=operations.alias, elide_empty=False).as_sql()
        of = "" if "." in compiler.model._meta.db_table else f"OF {compiler.table}"
        table, pk, assignments, returning = self._parts
        return sql.claim_picked(table, pk, pick, compiler.quote("pk"), of, assignments, returning), params

    @cached_property
    def _cache(self) -> dict[tuple[object, ...], tuple[Q, str, Sequence[object]]]:
        return {}


class Crashed(Strategy):
    """For rows that lost leases: by age alone, and without a prepared plan, because they are rare."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows whose number of lost leases in a row is within bounds."""
        settings = self._operations.settings
        bounds = {Crashes.FEW: (1, settings.alone_from), Crashes.MANY: (settings.alone_from, settings.MAX_CRASHES)}
        params = [wanted.names, *bounds[wanted.crashes], wanted.limit, *self._params(wanted.token)]
        return self._instances(self._operations.fetch(self.statement, params, sql.BY_KEY), wanted.turn)

    @cached_property
    def statement(self) -> str:
        """The statement."""
        return sql.claim(*self._parts, crashed=True)


def strategy_for(operations: Operations, crashes: Crashes) -> type[Strategy] | None:
    """Return the way to claim rows now; None if the portable statements have to do it."""
    options, fair_by = operations.options, operations.options.fair_by
    partly_paused = operations.pauses and operations.pauses.partial
    may_be_closed = operations.hooks.claimable or operations.refusals.refused
    picked = options.then or (may_be_closed and operations.open_to_me())
    if operations.waits or operations.model._meta.parents or partly_paused or (picked and fair_by):
        # Such models have columns in several tables or conditions on other tables.
        return None
    if picked:
        return Open
    if crashes is not Crashes.NONE:
        return Crashed
    return InShares if fair_by else InLine


_number_of_turn = itemgetter(-1)
