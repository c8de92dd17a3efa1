"""What slows or deafens workers on PostgreSQL: long transactions, dead rows, a pooler in between."""

from collections.abc import Iterator
from typing import Any

from django.db import connections

from stator.commands.doctor.finding import OK, WARN, Finding
from stator.conf import load_settings
from stator.durations import span

# A transaction older than this keeps dead rows of a busy table from being cleaned away.
LONG_TRANSACTION = 300.0

# Row versions since the oldest snapshot that somebody keeps.
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


def examine(alias: str, models: list[Any]) -> Iterator[Finding]:
    """What is found on PostgreSQL; nothing on others."""
    if connections[alias].vendor != "postgresql":
        return
    yield long_transactions(alias)
    yield oldest_snapshot(alias)
    yield dead_rows(alias, models)
    yield pooler(alias)


def long_transactions(alias: str) -> Finding:
    """Whether a transaction has been open for long."""
    for pid, user, state, age in _ask(alias, TRANSACTIONS):
        if age > LONG_TRANSACTION:
            message = f"session {pid} of {user} ({state}) has had one open for {span(age)}"
            return Finding("transactions", alias, WARN, message, f"end it with pg_terminate_backend({pid})")
    return Finding("transactions", alias, OK, f"none has been open for more than {span(LONG_TRANSACTION)}")


def oldest_transaction(alias: str) -> float:
    """For how many seconds the oldest transaction but our own has been open; 0 when there is none."""
    return max((float(age) for *_, age in _ask(alias, TRANSACTIONS)), default=0.0)


def oldest_snapshot(alias: str) -> Finding:
    """Who keeps old row versions from being cleaned away."""
    for holder, held in _ask(alias, SNAPSHOTS):
        if held > OLD_SNAPSHOT:
            message = f"{holder} keeps the row versions of {held:,} transactions from being cleaned away"
            return Finding("snapshots", alias, WARN, message, "end the session, drop the slot, finish what is prepared")
        return Finding("snapshots", alias, OK, f"the oldest is of {holder}, {held:,} transactions ago")
    return Finding("snapshots", alias, OK, "nobody keeps an old one")


def dead_rows(alias: str, models: list[Any]) -> Finding:
    """Whether tables hold more dead rows than live ones."""
    names = [model._meta.db_table.rpartition(".")[2].strip('"') for model in models]
    if found := _ask(alias, DEAD, [names, DEAD_ROWS]):
        message = ", ".join(f"{name} has {dead:,} and {live:,} live ones" for name, dead, live in found)
        return Finding("dead rows", alias, WARN, message, "VACUUM them, and have autovacuum visit them more often")
    return Finding("dead rows", alias, OK, "no table has more than live ones")


def pooler(alias: str) -> Finding:
    """Whether a pooler is in between, which keeps workers from hearing NOTIFY."""
    ((actual,),) = _ask(alias, "SELECT pg_backend_pid()")
    # A pooler hands out a number of its own for the session.
    if connections[alias].connection.info.backend_pid == actual:
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
