"""Checks for problems on PostgreSQL: long transactions, old snapshots, dead rows, replication, a pooler."""

from importlib import import_module
from typing import Any

from django.db import connections

from stator.commands.doctor.finding import OK, WARN, Finding
from stator.conf import load_settings
from stator.graph.durations import span

# Seconds; an older transaction prevents the removal of a busy table's dead rows.
LONG_TRANSACTION = 300.0

# Transactions since the oldest snapshot that is still held.
OLD_SNAPSHOT = 1_000_000

DEAD_ROWS = 10_000

TRANSACTIONS = """
SELECT pid, usename, state, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
  AND backend_type = 'client backend' ORDER BY xact_start LIMIT 1
"""

SNAPSHOTS = """
SELECT * FROM (
  SELECT 'session ' || pid AS holder, age(backend_xmin) AS held FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
  UNION ALL SELECT 'replication slot ' || slot_name, greatest(age(xmin), age(catalog_xmin)) FROM pg_replication_slots
  UNION ALL SELECT 'prepared transaction ' || gid, age(transaction) FROM pg_prepared_xacts) held
WHERE held IS NOT NULL ORDER BY held DESC LIMIT 1
"""

DEAD = """
SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables
WHERE relname = ANY(%s) AND n_dead_tup > %s AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC LIMIT 5
"""


# Bytes by which replicas may lag, and bytes of write-ahead log that an unread slot may keep.
BEHIND_BYTES = 1 << 30

REPLICAS = """
SELECT coalesce(nullif(application_name, ''), 'process ' || pid),
       pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint
FROM pg_stat_replication WHERE replay_lsn IS NOT NULL ORDER BY 2 DESC LIMIT 5
"""

SLOTS = """
SELECT slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS kept
FROM pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY kept DESC LIMIT 5
"""


def long_transactions(alias: str, models: list[Any]) -> Finding:
    """Check for a transaction that has been open for long."""
    for pid, user, state, age in _ask(alias, TRANSACTIONS):
        if age > LONG_TRANSACTION:
            message = f"session {pid} of {user} ({state}) has had one open for {span(age)}"
            return Finding("transactions", alias, WARN, message, f"end it with pg_terminate_backend({pid})")
    return Finding("transactions", alias, OK, f"none has been open for more than {span(LONG_TRANSACTION)}")


def oldest_transaction(alias: str) -> float:
    """Return the seconds for which the oldest other transaction has been open; 0 if there is none."""
    return max((float(age) for *_, age in _ask(alias, TRANSACTIONS)), default=0.0)


def oldest_snapshot(alias: str, models: list[Any]) -> Finding:
    """Check what prevents the removal of old row versions."""
    for holder, held in _ask(alias, SNAPSHOTS):
        if held > OLD_SNAPSHOT:
            message = f"{holder} keeps the row versions of {held:,} transactions from being cleaned away"
            return Finding("snapshots", alias, WARN, message, "end the session, drop the slot, finish what is prepared")
        return Finding("snapshots", alias, OK, f"the oldest is of {holder}, {held:,} transactions ago")
    return Finding("snapshots", alias, OK, "nobody keeps an old one")


def dead_rows(alias: str, models: list[Any]) -> Finding:
    """Check for tables with more dead rows than live ones."""
    names = [model._meta.db_table.rpartition(".")[2].strip('"') for model in models]
    if found := _ask(alias, DEAD, [names, DEAD_ROWS]):
        message = ", ".join(f"{name} has {dead:,} and {live:,} live ones" for name, dead, live in found)
        remedy = "VACUUM them, and have autovacuum visit them more often, by StorageParameters in a migration"
        return Finding("dead rows", alias, WARN, message, remedy)
    return Finding("dead rows", alias, OK, "no table has more than live ones")


def replication(alias: str, models: list[Any]) -> Finding:
    """Check for replicas that lag far behind, and for slots whose log may fill the disk."""
    replicas, slots = _ask(alias, REPLICAS), _ask(alias, SLOTS)
    late = [f"{name} is {_size(behind)} behind" for name, behind in replicas if behind > BEHIND_BYTES]
    late += [f"slot {name} keeps {_size(kept)} of log" for name, active, kept in slots if kept > BEHIND_BYTES]
    late += [f"nobody reads slot {name}" for name, active, kept in slots if not active and kept <= BEHIND_BYTES]
    if late:
        remedy = "mend the replica; if it is gone for good, pg_drop_replication_slot()"
        return Finding("replication", alias, WARN, "; ".join(late), remedy)
    none = "no replica is far behind" if replicas else "there are no replicas"
    return Finding("replication", alias, OK, none)


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MB"


def pooler(alias: str, models: list[Any]) -> Finding:
    """Check for a pooler, behind which workers do not receive NOTIFY."""
    # Imported here, because it needs psycopg, which a project on another database may not have.
    if import_module("stator.db.sessions").session_of(connections[alias]).direct:
        return Finding("pooler", alias, OK, "none is between here and the database")
    settings = load_settings()
    if settings.NOTIFY and not settings.LISTEN_DSN:
        message = "there is one between here and the database, so workers may not hear NOTIFY and wake by polling"
        return Finding("pooler", alias, WARN, message, "set LISTEN_DSN to a way around it, or NOTIFY to False")
    return Finding("pooler", alias, OK, "there is one, and workers do not listen through it")


def _ask(alias: str, statement: str, params: list[Any] | None = None) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())
