"""Checks for problems on PostgreSQL: long transactions, old snapshots, dead rows, slots, and a pooler."""

import re

import pytest
from django.db import connection

from stator.commands.doctor import postgresql
from tests.processes import wait_until
from tests.stator.commands.doctor.examining import examined
from tests.stator.making import put, raw
from tests.testapp.explained import Errand

if connection.vendor == "postgresql":
    from stator.db.session import session_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session():
    """A session of somebody else, by a statement: ``session("BEGIN")``."""
    other = connection.copy()
    yield lambda statement: other.cursor().execute(statement)
    other.close()


@pytest.mark.postgresql
def test_settings_of_the_server_are_told(crew_of_all):
    finding = examined()[1]["server"]
    assert finding["level"] == "ok"
    told = r"shared_buffers is [\d,]+ MB; \d+ of \d+ connections are in use; JIT is (off|on for .*)"
    assert re.fullmatch(told, finding["message"])


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("limit", "value", "remedy"),
    [
        ("FEW_BUFFERS", 1 << 50, "set shared_buffers"),
        ("MAX_USED", 0.0, "raise max_connections, or start fewer workers"),
    ],
)
def test_setting_of_the_server_that_costs_is_a_warning(crew_of_all, monkeypatch, limit, value, remedy):
    monkeypatch.setattr(postgresql, limit, value)
    finding = examined()[1]["server"]
    assert finding["level"] == "warn"
    assert finding["remedy"].startswith(remedy)


@pytest.mark.postgresql
def test_long_transaction_is_a_warning(crew_of_all, session, monkeypatch):
    session("BEGIN")
    monkeypatch.setattr(postgresql, "LONG_TRANSACTION", -1.0)
    finding = examined()[1]["transactions"]
    assert finding["level"] == "warn"
    assert "(idle in transaction) has had one open for" in finding["message"]
    assert "pg_terminate_backend(" in finding["remedy"]


@pytest.mark.postgresql
def test_wait_for_a_lock_is_a_warning_that_names_who_has_it(crew_of_all, session, monkeypatch):
    row = f"SELECT 1 FROM testapp_errand WHERE id = {put(Errand).pk} FOR UPDATE"
    session(f"BEGIN; {row}")
    [holder] = session("SELECT pg_backend_pid()").fetchone()
    other = connection.copy()
    other.ensure_connection()
    other.connection.pgconn.send_query(row.encode())
    monkeypatch.setattr(postgresql, "LONG_WAIT", -1.0)
    try:
        wait_until(lambda: examined()[1]["locks"]["level"] == "warn")
        finding = examined()[1]["locks"]
        assert f"for a lock of session {holder} (of " in finding["message"]
        assert finding["message"].endswith("1 wait in all")
        assert finding["remedy"] == f"end it with pg_terminate_backend({holder})"
    finally:
        session("ROLLBACK")
        other.close()


@pytest.mark.postgresql
def test_old_snapshot_is_a_warning(crew_of_all, session, monkeypatch):
    session("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session("SELECT count(*) FROM testapp_errand")
    monkeypatch.setattr(postgresql, "OLD_SNAPSHOT", 5)
    for _ in range(10):
        put(Errand)
    finding = examined()[1]["snapshots"]
    assert finding["level"] == "warn"
    assert re.match(r"session \d+ prevents the cleanup of the row versions of \d+ transactions", finding["message"])
    session("ROLLBACK")
    assert examined()[1]["snapshots"]["level"] == "ok"


@pytest.mark.postgresql
def test_dead_rows_are_a_warning(crew_of_all, monkeypatch):
    monkeypatch.setattr(postgresql, "DEAD_ROWS", 5)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM testapp_errand")
        # More than the tests before left in any table: only the worst are named.
        raw(Errand).bulk_create(Errand() for _ in range(2000))
        raw(Errand).all().delete()
        cursor.execute("SELECT pg_stat_force_next_flush()")
    told = re.compile(r"testapp_errand has [\d,]+ dead and 0 live rows")
    wait_until(lambda: told.search((warned("dead rows") or {}).get("message", "")))


def warned(check):
    finding = examined()[1][check]
    return finding if finding["level"] == "warn" else None


@pytest.mark.postgresql
def test_slot_that_nobody_reads_is_a_warning(crew_of_all, monkeypatch):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_create_physical_replication_slot('replica_that_is_gone', true)")
        try:
            finding = examined()[1]["replication"]
            monkeypatch.setattr(postgresql, "BEHIND_BYTES", -1)
            full = examined()[1]["replication"]
        finally:
            cursor.execute("SELECT pg_drop_replication_slot('replica_that_is_gone')")
    assert (finding["level"], finding["message"]) == ("warn", "slot replica_that_is_gone has no reader")
    assert re.search(r"slot replica_that_is_gone retains \d+ MB of write-ahead log", full["message"])


@pytest.mark.postgresql
def test_pooler_is_a_warning_where_workers_would_listen_through_it(monkeypatch, settings):
    assert postgresql.pooler("default", []).level == "ok"
    monkeypatch.setattr(session_of(connection), "direct", False)
    finding = postgresql.pooler("default", [])
    assert (finding.level, "LISTEN_DSN" in finding.remedy) == ("warning", True)
    settings.STATOR = {"LISTEN_DSN": "host=elsewhere"}
    assert postgresql.pooler("default", []).level == "ok"
