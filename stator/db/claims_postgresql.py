"""Claims on PostgreSQL: three statements, each for the models that it suits. ``claims`` has those for every database.

Names come quoted. In every statement the picked rows are materialised: a plan that picks them again would lock more
rows than asked for. NO KEY UPDATE, so that a row is not skipped while somebody inserts a child row that refers to it.
"""

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Field, Q, UUIDField

from stator.db import claims, sql
from stator.db.claims import SPARE_VALUES, Turn
from stator.db.compiler import Compiler
from stator.db.instances import load_all
from stator.db.interface import PLACE, Operations
from stator.db.kept_statements import inlined
from stator.db.values import Instance, Row
from stator.graph import State
from stator.rows import columns
from stator.rows.claimable import Crashes, claimable_sql
from stator.rows.indexes import line_of, place_in_line
from stator.rows.watermark import SINCE, on_side
from stator.statements import Parameter, Statement, selecting, written

# The most statements to cache of one model with a condition of its own: one for each condition, turn and set of states.
MAX_CACHED = 300

# The seeds of a hash that gives values another order in each claim.
SEEDS = 2**63

# The name of the claim's token among the values.
TOKEN = "stator_token"

# Index ``st_ready``, by age ``st_age``. Columns of ORDER BY need their table, or they would be taken for names of the
# SELECT list. A locked row is updated where it was found: the index of the key has an entry for each of its versions,
# and IS NOT DISTINCT FROM does not use that index. The key is compared because partitions of a table have rows in equal
# places. A row that somebody else updated in between is not found there, and is left to the next claim.
ORDERED = """
WITH picked AS MATERIALIZED (
  SELECT {pk} AS pk, ctid AS place FROM {table}
  WHERE {claimable}{behind}
  ORDER BY {priority}COALESCE(state_next_attempt, state_changed), {table}.{pk}
  LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {table} SET {set} FROM picked
WHERE {table}.ctid = picked.place AND {table}.{pk} IS NOT DISTINCT FROM picked.pk{within}
RETURNING {returning}
"""
BEHIND = " AND (COALESCE(state_next_attempt, state_changed), {pk}) > (%(since)s, %(key)s)"
# The rows from a watermark on, by a column of each index of ready rows.
FROM_WATERMARK = " AND COALESCE(state_next_attempt, state_changed) >= %(since)s"

# ``turns`` has the values with ready rows in the order of their turn, found by one index step for each: from the last
# one to the largest, then from the smallest. Each value gets an equal share; ``more`` takes further rows of some values
# when other values have fewer. The inner limits are constants, so that the planner walks the index, and end early. The
# inner order is the order of the whole index, or the planner would use the index of a foreign key. The last column is
# the number of a row's turn. Index ``st_ready``, by age ``st_age``.
FAIR = """
WITH RECURSIVE turns(key, n, lap) AS (
  SELECT %(last)s::{key_type}, 0, 0
  UNION ALL
  SELECT next.key, turns.n + 1, next.lap FROM turns CROSS JOIN LATERAL (
    (SELECT {key} AS key, turns.lap AS lap FROM {table} WHERE {claimable} AND {key} > turns.key
     ORDER BY {table}.{key}, {order} LIMIT 1)
    UNION ALL
    (SELECT {key}, 1 FROM {table} WHERE {claimable} AND turns.lap = 0 ORDER BY {table}.{key}, {order} LIMIT 1)
    LIMIT 1) next
  WHERE turns.n < %(max_values)s AND (next.lap = 1 AND next.key > %(last)s) IS NOT TRUE),
picked AS MATERIALIZED (
  SELECT ready.pk, turns.n FROM turns CROSS JOIN LATERAL (
    SELECT first.pk FROM (
      SELECT {pk} AS pk FROM {table} WHERE {claimable} AND {key} = turns.key
      ORDER BY {order} LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) first
    LIMIT (SELECT (%(limit)s + max(n) - 1) / greatest(max(n), 1) FROM turns)) ready
  WHERE turns.n > 0 ORDER BY turns.n LIMIT %(limit)s),
more AS MATERIALIZED (
  SELECT ready.pk FROM (SELECT key FROM turns WHERE n > 0 ORDER BY hashtextextended(key::text, %(seed)s)) others
  CROSS JOIN LATERAL (
    SELECT {pk} AS pk FROM {table} WHERE {claimable} AND {key} = others.key AND {pk} NOT IN (SELECT pk FROM picked)
    ORDER BY {order} LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) ready
  LIMIT %(limit)s - (SELECT count(*) FROM picked)),
chosen AS (SELECT pk, n FROM picked UNION ALL SELECT pk, 0 FROM more)
UPDATE {table} SET {set} FROM chosen WHERE {table}.{pk} = chosen.pk{within} RETURNING {returning}, chosen.n
"""

# ``pick`` is a query that Django has compiled, which narrows and orders the claimable rows. ``further`` are other parts
# of the WITH, such as the records of a program.
FILTERED = """
WITH {picked},
done AS (
  UPDATE {table} SET {set} FROM picked WHERE {table}.{pk} = picked.{key}{only}
  RETURNING {returning}{numbers}){further}
SELECT done.*{answer} FROM done WHERE state_claim IS NOT NULL
"""
PICKED = "picked AS MATERIALIZED ({pick}{lock})"
# The last column is a row's number in the order of the query.
NUMBERED = """locked AS MATERIALIZED ({pick} LIMIT %(limit)s{lock}),
picked AS MATERIALIZED (SELECT {key}, row_number() OVER () AS n FROM locked)"""
# ``near`` are the first rows in the order of an index; they are picked if they are ``sought``. The order needs no sort,
# the search ends early, and the plan needs no statistics.
PICKED_NEAR = """near AS MATERIALIZED ({among}),
picked AS MATERIALIZED (
  SELECT one.* FROM near CROSS JOIN LATERAL ({pick}{lock}) one WHERE near.sought LIMIT {limit})"""


def lock_of(compiler: Compiler) -> str:
    """Return the lock of a query that may join other tables; Django takes no name with a schema here."""
    of = "" if "." in compiler.model._meta.db_table else f"OF {compiler.table} "
    return f" FOR NO KEY UPDATE {of}SKIP LOCKED"


def filtered(
    compiler: Compiler,
    picked: Statement,
    changes: columns.Changes,
    *,
    only: Statement | str = "",
    numbers: str = "",
    further: Statement | str = "",
    answer: str = "",
) -> Statement:
    """Return the statement FILTERED; ``answer``: further columns that it returns."""
    return written(
        FILTERED, picked=picked, table=compiler.table, pk=compiler.pk, key=compiler.quote("pk"),
        set=compiler.assigned(changes), returning=compiler.columns, only=only, numbers=numbers, further=further,
        answer=answer,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows to claim: up to ``limit`` in ``states``, from a watermark on if ``since`` is its time.

    Rows that lost leases have a new ``turn``, which is by age.
    """

    states: list[State]
    limit: int
    token: UUID
    crashes: Crashes
    turn: Turn
    since: datetime | None

    @property
    def values(self) -> list[str | int]:
        """What is stored for the states."""
        return [state.value for state in self.states]


class StatementClaim:
    """A way to claim rows of a model with one statement."""

    def __init__(self, operations: Operations, compiler: Compiler) -> None:
        self._operations = operations
        self._compiler = compiler

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows and return their instances in the order of their turn."""
        raise NotImplementedError

    @cached_property
    def _changes(self) -> columns.Changes:
        return columns.claiming_due(
            self._operations.state_field, Parameter(TOKEN, UUIDField()), self._operations.lease_end()
        )

    @cached_property
    def _statements(self) -> dict[Hashable, Any]:
        """The statements, by what they depend on beside the model and the settings."""
        return self._compiler.statements_of(type(self), self._operations)

    def _written(self, text: str, returning: str = "", **holes: str | Statement) -> Statement:
        compiler = self._compiler
        return written(
            text, table=compiler.table, pk=compiler.pk, set=compiler.assigned(self._changes),
            returning=compiler.columns + returning, within=compiler.within(self._operations), **holes,
        )  # fmt: skip

    def _claimable(self, wanted: Wanted, from_watermark: str = FROM_WATERMARK) -> Statement:
        """Return the condition of the rows to claim."""
        return Statement.of(
            written(claimable_sql(wanted.crashes), column=self._compiler.state),
            self._compiler.within(self._operations),
            written(from_watermark if wanted.since else ""),
        )

    def _bound(self, statement: Statement, values: Mapping[str, object], wanted: Wanted) -> list[object]:
        operations = self._operations
        given = {SINCE: wanted.since, **values, TOKEN: wanted.token, "part": operations.part}
        return statement.bind(connections[operations.alias], given)

    def _instances(self, rows: list[Row], turn: Turn | None = None, *, placed: bool = False) -> list[Instance]:
        """Return the instances of claimed rows, in their order or in the order of a ``turn``.

        ``placed``: the last column is a row's place, which the record uses. Without places, the record uses the index
        of the keys; PostgreSQL removes dead versions that it meets there.
        """
        # If a row was marked ready too early, the claim only removed the mark.
        compiler, claim_at = self._compiler, self._compiler.claim_at
        rows = [row for row in rows if row[claim_at] is not None]
        rows = compiler.in_turn(rows, by_age=turn.by_age) if turn else rows
        cells = [row[:-1] for row in rows] if placed else rows
        connection = connections[self._operations.alias]
        instances = load_all(compiler.model, connection, compiler.read, cells)
        if placed:
            for instance, row in zip(instances, rows, strict=True):
                instance.__dict__[PLACE] = row[-1]
        return instances


class OrderedClaim(StatementClaim):
    """Claims by priority or by age: for most models, and for rows that lost leases.

    By age, a claim begins where the last one ended.
    """

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows from a place in the line, and from its head if there are none."""
        operations, turn = self._operations, wanted.turn
        by_age = turn.by_age or not operations.options.priority
        began = time.monotonic()
        place = turn.begin(began) if by_age else None
        statement = self._statement(by_age=by_age, further=place is not None, wanted=wanted)
        values: dict[str, object] = {"states": wanted.values, "limit": wanted.limit}
        if place is not None:
            values[SINCE], values["key"] = place
        regular = wanted.crashes is Crashes.NONE
        if not regular:
            values["lowest"], values["too_high"] = wanted.crashes.bounds(operations.settings)
        # Rows that lost leases are rare: their plan is not kept, and they may be sorted.
        planner = sql.BY_LINE if regular else sql.BY_KEY
        params = self._bound(statement, values, wanted)
        rows = operations.fetch(statement.text, params, planner, often=regular)
        instances = self._instances(rows, turn, placed=turn.strained)
        if place and not instances:
            # All ready rows are before that place.
            turn.place = None
            return self.claim(wanted)
        if by_age:
            last = instances[-1] if len(instances) == wanted.limit else None
            turn.end(self._place_in_line(last) if last else None, began, time.monotonic(), at_head=not wanted.since)
        return instances

    def _statement(self, *, by_age: bool, further: bool, wanted: Wanted) -> Statement:
        placed = wanted.turn.strained
        kind = by_age, further, bool(wanted.since), wanted.crashes, placed
        if kind not in self._statements:
            compiler = self._compiler
            self._statements[kind] = self._written(
                ORDERED,
                f", {compiler.table}.ctid" if placed else "",
                claimable=self._claimable(wanted, "" if further else FROM_WATERMARK),
                behind=written(BEHIND, pk=compiler.pk) if further else "",
                priority="" if by_age else compiler.priority,
            )
        statement: Statement = self._statements[kind]
        return statement

    def _place_in_line(self, instance: Instance) -> tuple[datetime, object]:
        [key] = self._compiler.sent([instance.pk])
        return instance.state_next_attempt or instance.state_changed, key


class FairClaim(StatementClaim):
    """Claims with ``fair_by``: each of its values in turn gets an equal share."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows of the values that come next."""
        compiler, turn, limit = self._compiler, wanted.turn, wanted.limit
        values = {
            "states": wanted.values, "last": turn.last, "limit": limit, "max_values": limit + SPARE_VALUES,
            "seed": wanted.token.int % SEEDS,
        }  # fmt: skip
        kind = turn.by_age, bool(wanted.since)
        if kind not in self._statements:
            self._statements[kind] = self._ordered_by("" if turn.by_age else compiler.priority, wanted)
        statement: Statement = self._statements[kind]
        params = self._bound(statement, values, wanted)
        rows = self._operations.fetch(statement.text, params, sql.BY_KEY)
        if rows:
            turn.last = max(rows, key=_number_of_turn)[compiler.fields.index(self._key)]
        return self._instances([row[:-1] for row in rows], turn)

    def _ordered_by(self, first: str, wanted: Wanted) -> Statement:
        compiler, key = self._compiler, self._key
        collation = key.db_parameters(compiler.connection).get("collation")
        key_type = str(key.rel_db_type(compiler.connection))
        if collation:
            key_type += f" COLLATE {compiler.quote(collation)}"
        return self._written(
            FAIR,
            key=compiler.quote(key.column),
            key_type=key_type,
            claimable=self._claimable(wanted),
            order=f"{first}COALESCE(state_next_attempt, state_changed), {compiler.table}.{compiler.pk}",
        )

    @property
    def _key(self) -> Field:
        return self._compiler.field(self._operations.fair_by or "")


class FilteredClaim(StatementClaim):
    """Claims under conditions that are about rows."""

    def claim(self, wanted: Wanted) -> list[Instance]:
        """Claim rows that a query picks."""
        statement = self._statement(wanted)
        params = self._bound(statement, {"limit": wanted.limit}, wanted)
        rows = self._operations.fetch(statement.text, params, sql.IN_ORDER, often=wanted.crashes is Crashes.NONE)
        return self._instances([row[:-1] for row in sorted(rows, key=_number_of_turn)])

    def _statement(self, wanted: Wanted) -> Statement:
        """Return the statement, which is kept while the conditions are the same.

        Its constants are in its text: with parameters, the plan that a session keeps would match no index.
        """
        conditions = self._operations.conditions
        condition, states = conditions.rows(), conditions.states(wanted.states)
        turn, names = wanted.turn.by_age, tuple(state.name for state in states)
        key = (id(condition), wanted.crashes, turn, bool(wanted.since), names)
        known, statement = self._statements.get(key, (None, None))
        if statement is None or known is not condition:
            if len(self._statements) >= MAX_CACHED:
                self._statements.clear()
            statement = inlined(self._operations.connection, self._compiled(wanted, condition))
            self._statements[key] = condition, statement
        return statement

    def _compiled(self, wanted: Wanted, condition: Q) -> Statement:
        operations, compiler = self._operations.division.template, self._compiler
        rows = operations.claimable(wanted.states).filter(condition).filter(operations.crashed(wanted.crashes))
        rows = on_side(rows, place_in_line(), "gte") if wanted.since else rows
        ordered = rows.order_by(*line_of(compiler.model, by_age=wanted.turn.by_age)).values("pk")
        # The query has no lock of Django's, which requires a transaction block; this statement is a transaction by
        # itself.
        picked = written(NUMBERED, pick=selecting(ordered), lock=lock_of(compiler), key=compiler.quote("pk"))
        only = compiler.within(operations)
        return filtered(compiler, picked, self._changes, only=only, numbers=", picked.n")


class PostgresqlClaims(claims.Claims):
    """Claims by one statement, each by the way that suits the model."""

    def __init__(self, operations: Operations, compiler: Compiler) -> None:
        super().__init__(operations)
        self.compiler = compiler
        self._ways: dict[type[StatementClaim], StatementClaim] = {}
        self._fair_by = operations.fair_by

    def _claim_rows(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        way = self._way(crashes)
        if way is None:
            return super()._claim_rows(states, limit, token, crashes)
        turn = self.lines.next(states) if crashes is Crashes.NONE else Turn()
        if way not in self._ways:
            self._ways[way] = way(self._operations, self.compiler)
        wanted, began = Wanted(states, limit, token, crashes, turn, turn.since()), time.monotonic()
        claimed = self._ways[way].claim(wanted)
        turn.learn(claimed, limit, wanted.since, time.monotonic() - began)
        return claimed

    def _way(self, crashes: Crashes) -> type[StatementClaim] | None:
        """Return the way to claim rows now; None if the statements for every database have to do it."""
        operations = self._operations
        picked = operations.options.then or operations.conditions.rows()
        if operations.conditions.withhold or operations.model._meta.parents or (picked and self._fair_by):
            # Such models have columns in several tables or conditions on other tables.
            return None
        if picked:
            return FilteredClaim
        return FairClaim if self._fair_by and crashes is Crashes.NONE else OrderedClaim


_number_of_turn = itemgetter(-1)
