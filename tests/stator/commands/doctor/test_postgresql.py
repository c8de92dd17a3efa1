"""Checks for problems on PostgreSQL: long transactions, old snapshots, dead rows, slots, and a pooler."""

import re

import pytest
from django.db import connection, connections

from stator.extensions.problems.commands.doctor import postgresql
from tests.processes import wait_until
from tests.stator.making import put
from tests.testapp.explained import Errand

if connection.vendor == "postgresql":
    from stator.db.session import session_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.fixture
def session(request):
    """A session of somebody else, by a statement: ``session("BEGIN")``."""
    other = connections[getattr(request, "param", "default")].copy()
    yield lambda statement: other.cursor().execute(statement)
    other.close()


@pytest.fixture
def shows():
    """Give one of the server's views other rows in this session: ``shows(view, query)``."""
    with connection.cursor() as cursor:
        yield lambda view, query: cursor.execute(f"CREATE TEMP VIEW {view} AS {query}")
        cursor.execute("DISCARD TEMP")


def pid_of(session):
    return session("SELECT pg_backend_pid()").fetchone()[0]


def look(check):
    """Return what a check says; test_doctor.py has all of them in one examination."""
    [finding] = check("default", [Errand])
    return finding


def warned(check, told):
    """Return the warning of a check if its sentence begins with this pattern."""
    finding = look(check)
    return finding if finding.level == "warning" and re.match(told, finding.sentence) else None


def test_settings_of_the_server_are_told_and_those_that_cost_are_a_warning(monkeypatch):
    told = r"shared_buffers is [\d,]+ MB; \d+ of \d+ connections are in use; JIT is (off|on for .*)"
    assert re.fullmatch(told, look(postgresql.server).sentence)
    monkeypatch.setattr(postgresql, "FEW_BUFFERS", 1 << 50)
    monkeypatch.setattr(postgresql, "MAX_USED", 0.0)
    finding = warned(postgresql.server, "")
    assert finding.remedy.startswith("set shared_buffers")
    assert "raise max_connections, or start fewer workers" in finding.remedy


def test_long_transaction_is_a_warning(session, monkeypatch):
    session("BEGIN")
    monkeypatch.setattr(postgresql, "LONG_TRANSACTION", -1.0)
    pid = pid_of(session)
    finding = warned(postgresql.long_transactions, rf"session {pid} of .* \(idle in transaction\) has had one open for")
    assert finding.remedy == f"end it with pg_terminate_backend({pid})"


def test_wait_for_a_lock_is_a_warning_that_names_who_has_it(session, monkeypatch):
    row = f"SELECT 1 FROM testapp_errand WHERE id = {put(Errand).pk} FOR UPDATE"
    session(f"BEGIN; {row}")
    holder = pid_of(session)
    other = connection.copy()
    other.ensure_connection()
    other.connection.pgconn.send_query(row.encode())
    monkeypatch.setattr(postgresql, "LONG_WAIT", -1.0)
    told = rf"session \d+ has waited .* for a lock of session {holder} \(of .*; 1 wait in all"
    try:
        finding = wait_until(lambda: warned(postgresql.lock_waits, told))
        assert finding.remedy == f"end it with pg_terminate_backend({holder})"
    finally:
        session("ROLLBACK")
        other.close()


def test_old_snapshot_is_a_warning(session, monkeypatch):
    session("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session("SELECT count(*) FROM testapp_errand")
    told = look(postgresql.oldest_snapshot)
    assert told.level == "ok"
    assert re.fullmatch(r"the oldest is of .*, [\d,]+ transactions ago", told.sentence)
    monkeypatch.setattr(postgresql, "OLD_SNAPSHOT", 5)
    for _ in range(10):
        put(Errand)
    prevents = f"session {pid_of(session)} prevents the cleanup of the row versions of [\\d,]+ transactions"
    # Only the oldest is named, and autovacuum may have one as old for a moment.
    wait_until(lambda: warned(postgresql.oldest_snapshot, prevents))
    session("ROLLBACK")
    assert not warned(postgresql.oldest_snapshot, prevents)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("session", ["other"], indirect=True)
def test_snapshot_of_another_database_keeps_no_rows_of_this_one(session, monkeypatch):
    session("BEGIN ISOLATION LEVEL REPEATABLE READ")
    pid = pid_of(session)
    monkeypatch.setattr(postgresql, "OLD_SNAPSHOT", -1)
    for _ in range(10):
        put(Errand)
    assert f"session {pid} " not in look(postgresql.oldest_snapshot).sentence


def test_dead_rows_are_a_warning(shows):
    shows(
        "pg_stat_user_tables",
        "SELECT * FROM (VALUES ('public', 'testapp_errand', 12345, 7), ('public', 'testapp_site', 12345, 12345),"
        " ('public', 'testapp_line', 9999, 0), ('public', 'of_another_program', 12345, 0))"
        " AS told (schemaname, relname, n_dead_tup, n_live_tup)",
    )
    assert warned(postgresql.dead_rows, "testapp_errand has 12,345 dead and 7 live rows$")


def test_slot_that_nobody_reads_is_a_warning(monkeypatch, shows):
    xids = "NULL::xid AS xmin, NULL::xid AS catalog_xmin"
    shows(
        "pg_replication_slots",
        f"SELECT 'of_gone_replica' AS slot_name, false AS active, pg_current_wal_lsn() AS restart_lsn, {xids}",
    )
    assert warned(postgresql.replication, "slot of_gone_replica has no reader$")
    monkeypatch.setattr(postgresql, "BEHIND_BYTES", -1)
    assert warned(postgresql.replication, r"slot of_gone_replica retains \d+ MB of write-ahead log$")


def test_pooler_is_a_warning_where_workers_would_listen_through_it(monkeypatch, settings):
    assert postgresql.pooler("default", []).level == "ok"
    monkeypatch.setattr(session_of(connection), "direct", False)
    finding = postgresql.pooler("default", [])
    assert (finding.level, "LISTEN_DSN" in finding.remedy) == ("warning", True)
    settings.STATOR = {"LISTEN_DSN": "host=elsewhere"}
    assert postgresql.pooler("default", []).level == "ok"
