"""PostgreSQL: rows are claimed and outcomes recorded each in one statement, which is also its transaction."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import DurationField, sql
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from psycopg import ClientCursor, IsolationLevel
from psycopg.types.datetime import TimestamptzLoader

from stator import columns
from stator.db import base
from stator.db.written import RELEASED, Ended
from stator.graph import State
from stator.outcomes import Moved, Released, Waiting

# Sent ahead of a statement and in force for that statement only. Every statement here reaches its rows through an
# index; in a small or churned table the planner would rather read all of it, dead rows included.
PLANNER = "SET LOCAL enable_seqscan = off; "

COUNT = (
    'INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed)'
    " SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s, count(*), count(*) FILTER (WHERE failed)"
    " FROM done HAVING count(*) > 0"
)


class Operations(base.Operations):
    """PostgreSQL 14 and later: one statement to claim, one to record."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction at READ COMMITTED, whatever the default of the database is."""
        return _read_committed(self.alias, super().transaction)

    def _recording(self, group: list[Ended]) -> AbstractContextManager[Any]:
        """A transaction only where reports are kept as well; else the statement is one by itself."""
        return self.transaction() if any(self._report(*ended) for ended in group) else nullcontext()

    def fetch(self, statement: str, params: list[Any]) -> list[Any]:
        """The rows of one statement, which outside of a transaction is one by itself and takes one round trip."""
        connection = self.connection
        if connection.in_atomic_block:
            ours = getattr(connection, "stator_transaction", False)
            return _rows(connection, PLANNER + statement if ours else statement, params)
        if self._default_isolation == "read committed":
            return _rows(connection, PLANNER + statement, params)
        with self.transaction():
            return _rows(connection, PLANNER + statement, params)

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
        names = [state.name for state in states]
        params = [names, self.settings.MAX_CRASHES, limit, *self._claim_params(token)]
        return self._instances(self.fetch(self._claim_sql.replace("{crashed}", crashed), params))

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

    def _write(self, state: State, to: str, group: list[Ended]) -> set[Any]:
        """RECORD. Outcomes of one kind and their statistics; a row is written only while its own claim stands."""
        statement, params = self._record_statement(group[0][1])
        counted = [self.label, state.name, "" if to == RELEASED else to, self.shard]
        rows = self.fetch(statement, [*self._arrays(group), state.name, *params, state.name, *counted])
        return {self._pk_field.to_python(pk) for (pk,) in rows}

    def _count(self, state: State, to: str, kept: list[Ended]) -> None:
        """Nothing: the statement that records counts as well."""

    def _record_statement(self, outcome: Any) -> tuple[str, Any]:
        key = (type(outcome), outcome.to if isinstance(outcome, Moved) else None)
        if key not in self._statements:
            assignments, params = self._assignments(_changes(outcome))
            self._statements[key] = self._fenced_update(assignments, isinstance(outcome, Released)), params
        return self._statements[key]

    @cached_property
    def _statements(self) -> dict[Any, tuple[str, Any]]:
        return {}

    def _fenced_update(self, assignments: str, released: bool) -> str:
        """The statement that records, around the SET list of an outcome.

        The claims are compared by IS NOT DISTINCT FROM: an equality would let the planner walk the index of leases,
        with all its dead entries, instead of the primary key.
        """
        return (
            f"WITH v AS (SELECT * FROM unnest(%s::{self._pk_type}[], %s::uuid[], %s::float8[], %s::bool[])"
            f" AS v(pk, claim, delay, failed)),"
            f" mine AS MATERIALIZED (SELECT t.{self._pk} AS pk FROM {self._table} t JOIN v ON t.{self._pk} = v.pk"
            f" WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s FOR NO KEY UPDATE OF t SKIP LOCKED),"
            f" done AS (UPDATE {self._table} SET {assignments} FROM mine JOIN v ON v.pk = mine.pk"
            f" WHERE {self._table}.{self._pk} = mine.pk"
            f" AND {self._table}.state_claim IS NOT DISTINCT FROM v.claim AND {self._table}.state = %s"
            f" RETURNING {self._table}.{self._pk} AS pk, v.failed),"
            f' counted AS ({COUNT}{" AND false" if released else ""} ON CONFLICT (model_label, hour, source, "to", shard)'
            f" DO UPDATE SET handled = stator_stats.handled + excluded.handled,"
            f" failed = stator_stats.failed + excluded.failed)"
            f" SELECT pk FROM done"
        )

    def _arrays(self, group: list[Ended]) -> list[list[Any]]:
        prepare, connection = self._pk_field.get_db_prep_value, self.connection
        return [
            [prepare(claim.pk, connection, prepared=False) for claim, _ in group],
            [claim.token for claim, _ in group],
            [outcome.delay if isinstance(outcome, Waiting) else 0.0 for _, outcome in group],
            [getattr(outcome, "failure", None) is not None for _, outcome in group],
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
        update: Any = self.rows.query.chain(sql.UpdateQuery)
        update.add_update_values(changes)
        statement, params = update.get_compiler(using=self.alias).as_sql()
        return statement.split(" SET ", 1)[1], params


def _rows(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    connection.ensure_connection()
    with connection.wrap_database_errors, ClientCursor(connection.connection) as cursor:
        if settings.USE_TZ:
            # Django registers a loader written in Python; psycopg's own takes a tenth of the time.
            cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        cursor.execute(statement, params)
        while cursor.nextset():
            pass
        return cursor.fetchall()


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
    connection: Any = connections[alias]
    if connection.in_atomic_block:
        with begin():
            yield
        return
    connection.ensure_connection()
    before = connection.connection.isolation_level
    connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.stator_transaction = True
    try:
        with begin():
            yield
    finally:
        connection.stator_transaction = False
        if connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before
