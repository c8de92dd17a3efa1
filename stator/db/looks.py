"""Looks: what people's tools read, bounded in time, so that an ill table or database keeps nobody from the rest."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from django.db import connections

from stator.capabilities import capabilities_of
from stator.graph.durations import span
from stator.statements import fetch_all

# Seconds that a statement of a look waits for a lock, and that it takes at most.
LOCK, MOST = 0.3, 3.0

# Locks for which readers wait, the granted ones first. A lock that is itself waited for names the session it waits for.
LOCKS = """
SELECT coalesce(owner.relname, found.relname), locks.pid, holder.pid, holder.usename, holder.application_name,
  extract(epoch FROM clock_timestamp() - holder.xact_start), left(holder.query, 80)
FROM pg_locks locks
  JOIN pg_class found ON found.oid = locks.relation
  LEFT JOIN pg_index ON indexrelid = found.oid
  LEFT JOIN pg_class owner ON owner.oid = indrelid
  JOIN pg_stat_activity holder ON holder.pid = CASE WHEN granted THEN locks.pid ELSE
    (SELECT pid FROM unnest(pg_blocking_pids(locks.pid)) pid LIMIT 1) END
WHERE locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode = 'AccessExclusiveLock' AND locks.pid <> pg_backend_pid()
ORDER BY granted, waitstart DESC NULLS LAST
"""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The session for which readers of a table wait; ``since``: how long ago its transaction began, in seconds."""

    table: str
    pid: int
    who: str
    since: float
    statement: str

    def __str__(self) -> str:
        doing = f": {self.statement}" if self.statement else ""
        return f"table {self.table} is locked by session {self.pid} ({self.who}), for {span(self.since)}{doing}"


@contextmanager
def bounded(using: str, lock: float = LOCK, most: float = MOST) -> Iterator[None]:
    """Read within limits: seconds that a statement waits for a lock, and that it takes at most.

    An open transaction of the caller stays usable after a statement that was cut short.
    """
    connection = connections[using]
    statements = capabilities_of(connection).statements
    with import_module(statements).looking(connection, lock, most):
        yield


@contextmanager
def reading(using: str) -> Iterator[None]:
    """Read in one transaction in which the database refuses to write; within another transaction it does not refuse."""
    connection = connections[using]
    statements = capabilities_of(connection).statements
    with import_module(statements).reading(connection):
        yield


def holders(using: str) -> dict[str, LockHolder]:
    """Return, by the name of each table for whose lock readers wait, who holds it; empty if the server cannot say."""
    connection = connections[using]
    if not capabilities_of(connection).has_monitoring_views:
        return {}
    with bounded(using):
        rows = fetch_all(connection, LOCKS)
    return {
        table: LockHolder(
            table, pid, ", ".join(filter(None, (user, program))), float(since or 0.0), _one_line(statement)
        )
        for table, _, pid, user, program, since, statement in rows
    }


def _one_line(statement: str | None) -> str:
    return " ".join((statement or "").split())


def holder_among(holders: dict[str, LockHolder], tables: Collection[str]) -> LockHolder | None:
    """Return who holds one of these tables, else who holds any."""
    return next((holders[table] for table in tables if table in holders), next(iter(holders.values()), None))
