"""Checks for problems on PostgreSQL: settings, long transactions, old snapshots, dead rows, replication, a pooler."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib import import_module

from django.db import connections

from stator.conf import load_settings
from stator.db.values import Row
from stator.extensions.problems.commands.doctor.servers import ask, tables_on
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.problem import OK, WARNING, Problem
from stator.texts import counted

# Seconds; an older transaction prevents the removal of a busy table's dead rows.
LONG_TRANSACTION = 300.0

# Seconds; workers wait for no row, and for a table half a second, so it is other work that waits longer.
LONG_WAIT = 10.0

# Transactions since the oldest snapshot that is still held.
OLD_SNAPSHOT = 1_000_000

DEAD_ROWS = 10_000

TRANSACTIONS = """
SELECT pid, usename, state, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
  AND backend_type = 'client backend' ORDER BY xact_start LIMIT 1
"""

# Row versions are kept for snapshots of the same database and for replicas, but not for a VACUUM.
SNAPSHOTS = """
SELECT * FROM (
  SELECT 'session ' || pid AS holder, age(backend_xmin) AS held FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (datname = current_database() OR backend_type = 'walsender')
      AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL SELECT 'replication slot ' || slot_name, greatest(age(xmin), age(catalog_xmin)) FROM pg_replication_slots
  UNION ALL SELECT 'prepared transaction ' || gid, age(transaction) FROM pg_prepared_xacts
    WHERE database = current_database()) held
WHERE held IS NOT NULL ORDER BY held DESC LIMIT 1
"""

# On a node of Citus, sessions that work for another node have its name for them as their application's. Process 0 is a
# prepared transaction. For a moment after a wait begins, its start is null.
WAITS = """
SELECT waiting.pid, extract(epoch FROM clock_timestamp() - waitstart)::float8 AS waited, count(*) OVER () AS waits,
  (pg_blocking_pids(waiting.pid))[1] AS blocker, coalesce(blocking.usename, '') AS usename,
  coalesce(blocking.state, '') AS state, coalesce(blocking.application_name, '') AS application
FROM pg_locks JOIN pg_stat_activity waiting USING (pid)
LEFT JOIN pg_stat_activity blocking ON blocking.pid = (pg_blocking_pids(waiting.pid))[1]
WHERE waitstart IS NOT NULL AND waiting.datname = current_database() ORDER BY waitstart LIMIT 1
"""

DEAD = """
SELECT CASE schemaname WHEN 'public' THEN '' ELSE schemaname || '.' END || relname AS relname, n_dead_tup, n_live_tup
FROM pg_stat_user_tables
WHERE relname = ANY(%(tables)s) AND n_dead_tup > %(dead)s AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC LIMIT 5
"""


# Bytes that replicas may lag behind, and bytes of write-ahead log that an unread slot may keep.
BEHIND_BYTES = 1 << 30

REPLICAS = """
SELECT coalesce(nullif(application_name, ''), 'process ' || pid) AS name,
       pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint AS behind
FROM pg_stat_replication WHERE replay_lsn IS NOT NULL ORDER BY behind DESC LIMIT 5
"""

SLOTS = """
SELECT slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS kept
FROM pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY kept DESC LIMIT 5
"""


# Bytes of PostgreSQL's own default, and the part of all connections that leaves room for one more worker or deployment.
FEW_BUFFERS, MAX_USED = 128 << 20, 0.8

# The connections to all databases of the server are counted; every role may see their number.
SETTINGS = """
SELECT pg_size_bytes(current_setting('shared_buffers')) AS buffers, sum(numbackends)::int AS used,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
  pg_jit_available() AND current_setting('jit')::bool AS compiles
FROM pg_stat_database
"""


# What a check says of the rows of its statements, on one server.
Judge = Callable[..., Problem]


def on_each_server(*statements: str) -> Callable[[Judge], Callable[[str, list[type[StatorModel]]], list[Problem]]]:
    """Make a check of what is said about the rows of these statements: it is said about each server of a database."""

    def made(judge: Judge) -> Callable[[str, list[type[StatorModel]]], list[Problem]]:
        @wraps(judge)
        def look(alias: str, models: list[type[StatorModel]]) -> list[Problem]:
            names = [model._meta.db_table.rpartition(".")[2].strip('"') for model in models]
            params = {"tables": tables_on(alias, names), "dead": DEAD_ROWS}
            answers = [ask(alias, statement, params) for statement in statements]
            judged = [(servers[0][0], judge(*(rows for _, rows in servers))) for servers in zip(*answers, strict=True)]
            return [replace(one, sentence=where + one.sentence) for where, one in judged]

        return look

    return made


@on_each_server(SETTINGS)
def server(rows: list[Row]) -> Problem:
    """Check the server for costly settings: few buffers, nearly no free connection; also report whether it compiles."""
    [(buffers, used, most, compiles)] = rows
    said = [f"shared_buffers is {_size(buffers)}", f"{used} of {most} connections are in use"]
    # Workers switch it off for their own statements.
    said.append("JIT is on for statements of handlers and pages" if compiles else "JIT is off")
    remedies = []
    if buffers < FEW_BUFFERS:
        remedies.append("set shared_buffers to a quarter of the server's memory")
    if used > MAX_USED * most:
        remedies.append("raise max_connections, or start fewer workers or threads (THREADS), or use a pooler")
    return Problem("server", "; ".join(said), remedy="; ".join(remedies), level=WARNING if remedies else OK)


@on_each_server(TRANSACTIONS)
def long_transactions(rows: list[Row]) -> Problem:
    """Check for a transaction that has been open for long."""
    for pid, user, state, age in rows:
        if age > LONG_TRANSACTION:
            message = f"session {pid} of {user} ({state}) has had one open for {span(age)}"
            return Problem("transactions", message, remedy=f"end it with pg_terminate_backend({pid})", level=WARNING)
    return Problem("transactions", f"none has been open for more than {span(LONG_TRANSACTION)}", level=OK)


def oldest_transaction(alias: str) -> float:
    """Return how many seconds the oldest other transaction has been open; 0 if there is none."""
    return max((float(age) for _, rows in ask(alias, TRANSACTIONS) for *_, age in rows), default=0.0)


@on_each_server(WAITS)
def lock_waits(rows: list[Row]) -> Problem:
    """Check for a session that has waited for another one's lock for long."""
    for pid, waited, waits, blocker, user, state, application in rows:
        if waited > LONG_WAIT:
            by = ", ".join(filter(None, (user and f"of {user}", state, application)))
            holder = f"session {blocker} ({by})" if blocker else "a prepared transaction"
            message = f"session {pid} has waited {span(waited)} for a lock of {holder}; {counted(waits, 'wait')} in all"
            remedy = f"end it with pg_terminate_backend({blocker})" if blocker else "end it; pg_prepared_xacts names it"
            return Problem("locks", message, remedy=remedy, level=WARNING)
    return Problem("locks", f"no session has waited for one for more than {span(LONG_WAIT)}", level=OK)


@on_each_server(SNAPSHOTS)
def oldest_snapshot(rows: list[Row]) -> Problem:
    """Check what prevents the removal of old row versions."""
    for holder, held in rows:
        if held > OLD_SNAPSHOT:
            message = f"{holder} prevents the cleanup of the row versions of {held:,} transactions"
            remedy = "end the session, drop the slot or finish the prepared transaction"
            return Problem("snapshots", message, remedy=remedy, level=WARNING)
        return Problem("snapshots", f"the oldest is of {holder}, {held:,} transactions ago", level=OK)
    return Problem("snapshots", "none is held", level=OK)


@on_each_server(DEAD)
def dead_rows(rows: list[Row]) -> Problem:
    """Check for tables with more dead rows than live ones."""
    if rows:
        message = ", ".join(f"{name} has {dead:,} dead and {live:,} live rows" for name, dead, live in rows)
        remedy = "VACUUM them, and let autovacuum run more often on them, with StorageParameters in a migration"
        return Problem("dead rows", message, remedy=remedy, level=WARNING)
    return Problem("dead rows", "no table has more dead than live rows", level=OK)


@on_each_server(REPLICAS, SLOTS)
def replication(replicas: list[Row], slots: list[Row]) -> Problem:
    """Check for replicas that lag far behind, and for slots whose log may fill the disk."""
    late = [f"{name} is {_size(behind)} behind" for name, behind in replicas if behind > BEHIND_BYTES]
    late += [
        f"slot {name} retains {_size(kept)} of write-ahead log" for name, active, kept in slots if kept > BEHIND_BYTES
    ]
    late += [f"slot {name} has no reader" for name, active, kept in slots if not active and kept <= BEHIND_BYTES]
    if late:
        remedy = "repair the replica; if it is gone for good, drop its slot with pg_drop_replication_slot()"
        return Problem("replication", "; ".join(late), remedy=remedy, level=WARNING)
    none = "no replica is far behind" if replicas else "there are no replicas"
    return Problem("replication", none, level=OK)


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MB"


def pooler(alias: str, models: list[type[StatorModel]]) -> Problem:
    """Check for a pooler, behind which workers do not receive NOTIFY."""
    # Imported here, because it needs psycopg, which a project on another database may not have.
    if import_module("stator.db.session").session_of(connections[alias]).direct:
        return Problem("pooler", "no pooler between this host and the database", level=OK)
    settings = load_settings()
    if settings.NOTIFY and not settings.LISTEN_DSN:
        message = "a pooler is between this host and the database, so workers may miss NOTIFY and rely on polling"
        remedy = "set LISTEN_DSN to a direct connection, or NOTIFY to False"
        return Problem("pooler", message, remedy=remedy, level=WARNING)
    return Problem("pooler", "a pooler is in between, but workers do not listen through it", level=OK)
