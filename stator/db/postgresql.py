"""PostgreSQL: rows are claimed and outcomes recorded each in one statement, which is also its transaction."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import DurationField, F, QuerySet, sql
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from psycopg import IsolationLevel

from stator import columns
from stator.db import base
from stator.db.base import Ended
from stator.graph import State
from stator.outcomes import Moved, Released, Waiting
from stator.statistics import Stats


class Operations(base.Operations):
    """PostgreSQL 14 and later: one statement to claim, one to record."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction at READ COMMITTED, whatever the default of the database is."""
        return _read_committed(self.alias, super().transaction)

    @contextmanager
    def _statement(self) -> Any:
        """A cursor for one statement that commits by itself; within a transaction where the default is stricter."""
        connection = self.connection
        if connection.in_atomic_block or self._default_isolation == "read committed":
            with connection.cursor() as cursor:
                yield cursor
            return
        with self.transaction(), connection.cursor() as cursor:
            yield cursor

    @cached_property
    def _default_isolation(self) -> str:
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW default_transaction_isolation")
            return cursor.fetchone()[0]

    def _claim_rows(self, states: list[State], limit: int, token: UUID, alone: bool) -> list[Any]:
        if self.model._meta.parents:
            # The columns of a row are in several tables: claim first, then load.
            return super()._claim_rows(states, limit, token, alone)
        crashed = "state_crashes > 0 AND state_crashes < %s" if alone else "state_crashes = 0 AND 0 < %s"
        with self._statement() as cursor:
            cursor.execute(
                self._claim_sql.replace("{crashed}", crashed),
                [[state.name for state in states], self.settings.MAX_CRASHES, limit, *self._claim_params(token)],
            )
            rows = cursor.fetchall()
        return self._instances(rows)

    @cached_property
    def _claim_sql(self) -> str:
        """CLAIM. The pick is materialised: a plan that runs it again would lock more rows than asked for.

        NO KEY UPDATE, so that a row is not passed over while somebody inserts a child row that refers to it.
        Index ``st_ready``.
        """
        assignments, _ = self._assignments(columns.claiming(UUID(int=0), self._lease_end()))
        returning = ", ".join(f"{self._table}.{self._quote(field.column)}" for field in self._fields)
        return (
            f"WITH picked AS MATERIALIZED (SELECT {self._pk} AS pk FROM {self._table}"
            f" WHERE state_ready AND state_claim IS NULL AND state = ANY(%s) AND {{crashed}}"
            f" ORDER BY COALESCE(state_next_attempt, state_changed), {self._pk}"
            f" LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)"
            f" UPDATE {self._table} SET {assignments} FROM picked WHERE {self._table}.{self._pk} = picked.pk"
            f" RETURNING {returning}"
        )

    def _claim_params(self, token: UUID) -> list[Any]:
        return list(self._assignments(columns.claiming(token, self._lease_end()))[1])

    def _instances(self, rows: list[Any]) -> list[Any]:
        names = [field.attname for field in self._fields]
        for position, convert in self._converters:
            rows = [(*row[:position], convert(row[position]), *row[position + 1 :]) for row in rows]
        from_db, alias = self.model.from_db, self.alias
        return sorted((from_db(alias, names, row) for row in rows), key=_turn)

    def _write(self, state: State, group: list[Ended]) -> set[Any]:
        """RECORD. Outcomes of one kind in one statement; a row is written only while its own claim stands."""
        statement, params = self._record_statement(group[0][1])
        arrays = self._arrays(group)
        with self._statement() as cursor:
            cursor.execute(statement, [*arrays, state.name, *params, state.name])
            return {self._pk_field.to_python(pk) for (pk,) in cursor.fetchall()}

    def _record_statement(self, outcome: Any) -> tuple[str, Any]:
        key = (type(outcome), outcome.to if isinstance(outcome, Moved) else None)
        if key not in self._statements:
            assignments, params = self._assignments(_changes(outcome))
            self._statements[key] = self._fenced_update(assignments), params
        return self._statements[key]

    @cached_property
    def _statements(self) -> dict[Any, tuple[str, Any]]:
        return {}

    def _fenced_update(self, assignments: str) -> str:
        return (
            f"WITH v AS (SELECT * FROM unnest(%s::{self._pk_type}[], %s::uuid[], %s::float8[], %s::bool[])"
            f" AS v(pk, claim, delay, failed)),"
            f" mine AS MATERIALIZED (SELECT t.{self._pk} AS pk FROM {self._table} t JOIN v ON t.{self._pk} = v.pk"
            f" WHERE t.state_claim = v.claim AND t.state = %s FOR NO KEY UPDATE OF t SKIP LOCKED)"
            f" UPDATE {self._table} SET {assignments} FROM mine JOIN v ON v.pk = mine.pk"
            f" WHERE {self._table}.{self._pk} = mine.pk"
            f" AND {self._table}.state_claim = v.claim AND {self._table}.state = %s"
            f" RETURNING {self._table}.{self._pk}"
        )

    def _arrays(self, group: list[Ended]) -> list[list[Any]]:
        prepare, connection = self._pk_field.get_db_prep_value, self.connection
        return [
            [prepare(claim.pk, connection, prepared=False) for claim, _ in group],
            [claim.token for claim, _ in group],
            [outcome.delay if isinstance(outcome, Waiting) else 0.0 for _, outcome in group],
            [isinstance(outcome, Waiting) and outcome.failure is not None for _, outcome in group],
        ]

    # How the model's columns are spelled

    @cached_property
    def _fields(self) -> list[Any]:
        return list(self.model._meta.concrete_fields)

    @cached_property
    def _converters(self) -> list[tuple[int, Callable[[Any], Any]]]:
        found = []
        for position, field in enumerate(self._fields):
            column = field.get_col(self.model._meta.db_table)
            backend = self.connection.ops.get_db_converters(column)
            for converter in [*backend, *column.get_db_converters(self.connection)]:
                found.append((position, _bound(converter, column, self.alias)))
        return found

    @cached_property
    def _pk_field(self) -> Any:
        return self.model._meta.pk

    @property
    def _pk(self) -> str:
        return self._quote(self._pk_field.column)

    @cached_property
    def _pk_type(self) -> str:
        return self._pk_field.rel_db_type(self.connection)

    @cached_property
    def _table(self) -> str:
        return self._quote(self.model._meta.db_table)

    def _quote(self, name: str) -> str:
        # A percent sign would be read as a placeholder.
        return self.connection.ops.quote_name(name).replace("%", "%%")

    def _assignments(self, changes: columns.Changes) -> tuple[str, Any]:
        """The SET list of an ORM update and its parameters."""
        update = self.rows.query.chain(sql.UpdateQuery)
        update.add_update_values(changes)
        statement, params = update.get_compiler(using=self.alias).as_sql()
        return statement.split(" SET ", 1)[1], params


def _changes(outcome: Any) -> columns.Changes:
    if isinstance(outcome, Moved):
        return columns.entering(outcome.to)
    if isinstance(outcome, Released):
        return columns.releasing()
    delay = RawSQL("v.delay * interval '1 second'", [], output_field=DurationField())
    failures = RawSQL("CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END", [])
    return columns.staying(Now() + delay, failures)


def _turn(instance: Any) -> Any:
    return instance.state_next_attempt or instance.state_changed, instance.pk


def _bound(converter: Any, column: Any, alias: str) -> Callable[[Any], Any]:
    return lambda value: converter(value, column, connections[alias])


@contextmanager
def _read_committed(alias: str, begin: Callable[[], AbstractContextManager[Any]]) -> Any:
    connection = connections[alias]
    if connection.in_atomic_block:
        with begin():
            yield
        return
    connection.ensure_connection()
    before = connection.connection.isolation_level
    connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    try:
        with begin():
            yield
    finally:
        if connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before
