"""``manage.py stator doctor`` finds what is wrong, says what to do, and tells it by its exit code."""

import io
import json
import re
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import OperationalError, connection

from stator.commands.doctor import clocks, postgresql, tables
from stator.commands.doctor.finding import FAIL, OK, WARN
from stator.db.interface import new_token, new_worker_id
from stator.migration_operations import ReconcileTrigger
from stator.models import Pause, Report, StatorModel, Worker
from stator.rows.indexes import own_indexes
from stator.rows.meta import managed
from tests.processes import wait_until
from tests.stator.making import ago, change, put, raw
from tests.testapp.explained import Errand, ErrandGraph
from tests.testapp.power import Site

if connection.vendor == "postgresql":
    from stator.db.session import session_of

pytestmark = pytest.mark.django_db(transaction=True)


def examined(*arguments):
    """``(exit code, findings by check)``."""
    out, code = io.StringIO(), 0
    try:
        call_command("stator", "doctor", "--json", *arguments, stdout=out)
    except SystemExit as ended:
        code = ended.code
    answer = json.loads(out.getvalue())
    assert answer["ok"] is (code == 0)
    return code, {finding["check"]: finding for finding in answer["findings"]}


@pytest.fixture
def crew_of_all():
    labels = [model._meta.label_lower for model in managed(StatorModel.subclasses)]
    return Worker.objects.create(id="a" * 12, host="oak", pid=7, version="1", models=labels, database="default")


def test_healthy_site_is_all_ok(crew_of_all):
    code, found = examined("--database", "default")
    assert {finding["level"] for finding in found.values()} == {OK}, found
    assert code == 0
    of_vendor = {
        "postgresql": {"triggers", "transactions", "snapshots", "dead rows", "replication", "pooler"},
        "sqlite": {"sqlite"},
    }
    everywhere = {"database", "indexes", "states", "workers", "served", "troubles", "clock"}
    assert set(found) == everywhere | of_vendor[connection.vendor]
    out = io.StringIO()
    call_command("stator", "doctor", "--database", "default", stdout=out)
    assert "ok    default  workers: every model has a live worker" in out.getvalue()


def test_missing_worker_is_a_warning_until_something_waits_for_one():
    code, found = examined()
    assert (code, found["workers"]["level"]) == (0, WARN)
    assert examined("--strict")[0] == 1
    put(Errand)
    code, found = examined()
    assert (code, found["workers"]["level"], found["no worker"]["level"]) == (1, WARN, FAIL)
    assert found["no worker"]["message"].startswith("testapp.Errand: 1 waits, but no live worker serves it")
    assert found["no worker"]["remedy"] == "start manage.py runstator (manage.py runstator)"


def test_due_rows_wait_for_a_worker_too():
    put(Errand, state_ready=False, state_next_attempt=ago(5))
    code, found = examined()
    assert (code, found["no worker"]["level"]) == (1, FAIL)


def test_lease_that_nobody_reaps_is_a_failure(crew_of_all):
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(5))
    assert examined()[0] == 0
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(60))
    code, found = examined()
    assert (code, found["late leases"]["level"]) == (1, FAIL)
    assert found["late leases"]["message"].startswith("testapp.Errand: 1 lease expired and not taken over")


def test_unknown_states_are_a_warning(crew_of_all):
    change(put(Errand), state="mislaid")
    code, found = examined("--strict")
    assert (code, found["states"]["level"]) == (1, WARN)
    assert "'mislaid'" in found["states"]["message"]


def test_missing_index_is_a_warning(crew_of_all):
    index = own_indexes(Errand)[0]
    with connection.schema_editor() as editor:
        editor.remove_index(Errand, index)
    try:
        finding = tables.indexes("default", [Errand])
    finally:
        with connection.schema_editor() as editor:
            editor.add_index(Errand, index)
    assert (finding.level, finding.message) == (WARN, f"missing or invalid: {index.name}")
    assert tables.indexes("default", [Errand]).level == OK


def test_database_that_cannot_be_used_ends_the_examination(monkeypatch):
    def fail(*args):
        raise OperationalError("connection refused")

    monkeypatch.setattr("stator.worker.startup._check", fail)
    code, found = examined("--database", "default")
    assert (code, list(found)) == (1, ["database"])
    assert found["database"]["level"] == FAIL
    assert "connection refused" in found["database"]["message"]
    assert found["database"]["remedy"] == "check DATABASES['default']"


@pytest.mark.postgresql
def test_clocks_that_are_apart_are_a_warning(monkeypatch):
    assert clocks.skew("default", []).level == OK
    real = clocks.time.time
    monkeypatch.setattr(clocks, "time", SimpleNamespace(time=lambda: real() + 60))
    finding = clocks.skew("default", [])
    assert (finding.level, "60" in finding.message) == (WARN, True)


def test_objects_in_trouble_are_a_warning(crew_of_all, monkeypatch):
    monkeypatch.setattr(ErrandGraph.new, "expect_within", 3600)
    put(Errand, state_crashes=3)
    put(Errand, state_ready=False, state_next_attempt=ago(-600), state_changed=ago(7200))
    failing = put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-60))
    Report.objects.create(model_label="testapp.errand", object_pk=str(failing.pk), state="new", error="OSError")
    code, found = examined()
    assert code == 0
    assert found["quarantined"]["message"].startswith("testapp.Errand: 1 quarantined")
    assert found["stuck"]["message"].startswith("testapp.Errand: 1 later than expected in new, up to 2 h")
    assert found["failing"]["message"] == "testapp.Errand: 1 failing in new with OSError"
    assert {found[code]["level"] for code in ("quarantined", "stuck", "failing")} == {WARN}
    assert "stator retry testapp.Errand --quarantined" in found["quarantined"]["remedy"]


def test_pauses_are_warnings(crew_of_all):
    Errand.stator.pause(reason="the bank is down", actor="ada")
    code, found = examined()
    assert (code, found["paused"]["level"]) == (0, WARN)
    raw(Pause).update(created=ago(100_000))
    finding = examined()[1]["stale pause"]
    assert finding["level"] == WARN
    assert "paused: all states by ada for 1 d 3 h, without an end (the bank is down)" in finding["message"]


def test_look_that_cannot_be_taken_does_not_keep_the_others_from_being_told(crew_of_all, monkeypatch):
    def fail(alias):
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr("stator.commands.doctor.crew.alive", fail)
    code, found = examined()
    assert (code, found["live workers"]["level"]) == (1, FAIL)
    assert found["live workers"]["message"] == "could not be checked: canceling statement due to statement timeout"
    assert found["clock"]["level"] == OK


def test_missing_table_of_the_framework_ends_the_examination():
    with altered("TABLE stator_pause RENAME TO lost", "TABLE lost RENAME TO stator_pause"):
        code, found = examined("--database", "default")
    assert (code, list(found)) == (1, ["database"])
    assert found["database"]["message"] == "database 'default' has no table stator_pause of stator.Pause"
    assert found["database"]["remedy"] == "run manage.py migrate"


@pytest.mark.parametrize(
    ("column", "remedy"),
    [("state_crashes", "run manage.py makemigrations and migrate"), ("name", "run manage.py migrate")],
)
def test_missing_column_is_named_and_other_models_are_looked_at(crew_of_all, column, remedy):
    put(Errand)
    change = "TABLE testapp_errand RENAME COLUMN {} TO {}"
    # What leaves a model out is no want of workers.
    crew_of_all.models.remove("testapp.errand")
    crew_of_all.save()
    with altered(change.format(column, "lost"), change.format("lost", column)):
        code, found = examined("--database", "default")
    lacks = f"table testapp_errand of testapp.Errand in database 'default' lacks column {column}"
    assert code == 1
    assert (found["database"]["message"], found["database"]["remedy"]) == (lacks, remedy)
    assert {finding["level"] for name, finding in found.items() if name != "database"} == {OK}, found


@contextmanager
def altered(there, back):
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER {there}")
        try:
            yield
        finally:
            cursor.execute(f"ALTER {back}")


@pytest.mark.sqlite
def test_sqlite_as_it_comes_is_a_warning(crew_of_all, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    finding = examined()[1]["sqlite"]
    assert finding["level"] == WARN
    assert "opened without transaction_mode IMMEDIATE and journal_mode WAL" in finding["message"]
    assert "PRAGMA journal_mode=WAL" in finding["remedy"]


# PostgreSQL


@pytest.mark.postgresql
def test_replica_is_refused():
    """One that says of itself what a replica says."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
        cursor.execute("SET search_path = public, pg_catalog")
        try:
            code, found = examined("--database", "default")
        finally:
            cursor.execute("SET search_path = DEFAULT")
            cursor.execute("DROP FUNCTION public.pg_is_in_recovery()")
    assert (code, list(found)) == (1, ["database"])
    assert "is a read replica" in found["database"]["message"]


@pytest.mark.postgresql
def test_invalid_index_is_a_warning(crew_of_all):
    """What CREATE INDEX CONCURRENTLY leaves when it fails."""
    name = own_indexes(Errand)[0].name
    change_it = "UPDATE pg_index SET indisvalid = %s WHERE indexrelid = %s::regclass"
    with connection.cursor() as cursor:
        cursor.execute(change_it, [False, name])
        try:
            finding = examined("--database", "default")[1]["indexes"]
        finally:
            cursor.execute(change_it, [True, name])
    assert (finding["level"], finding["message"]) == (WARN, f"missing or invalid: {name}")


@pytest.fixture
def session():
    """A session of somebody else, by a statement: ``session("BEGIN")``."""
    other = connection.copy()
    yield lambda statement: other.cursor().execute(statement)
    other.close()


@pytest.mark.postgresql
def test_long_transaction_is_a_warning(crew_of_all, session, monkeypatch):
    session("BEGIN")
    monkeypatch.setattr(postgresql, "LONG_TRANSACTION", -1.0)
    finding = examined()[1]["transactions"]
    assert finding["level"] == WARN
    assert "(idle in transaction) has had one open for" in finding["message"]
    assert "pg_terminate_backend(" in finding["remedy"]


@pytest.mark.postgresql
def test_old_snapshot_is_a_warning(crew_of_all, session, monkeypatch):
    session("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session("SELECT count(*) FROM testapp_errand")
    monkeypatch.setattr(postgresql, "OLD_SNAPSHOT", 5)
    for _ in range(10):
        put(Errand)
    finding = examined()[1]["snapshots"]
    assert finding["level"] == WARN
    assert re.match(r"session \d+ prevents the cleanup of the row versions of \d+ transactions", finding["message"])
    session("ROLLBACK")
    assert examined()[1]["snapshots"]["level"] == OK


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
    return finding if finding["level"] == WARN else None


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
    assert (finding["level"], finding["message"]) == (WARN, "slot replica_that_is_gone has no reader")
    assert re.search(r"slot replica_that_is_gone retains \d+ MB of write-ahead log", full["message"])


@pytest.mark.postgresql
def test_trigger_that_is_switched_off_gone_or_outdated_is_a_warning(crew_of_all):
    state, table = SimpleNamespace(apps=apps), Site._meta.db_table
    trigger = ReconcileTrigger.of(Site)
    with connection.schema_editor() as editor:
        trigger.database_forwards("testapp", editor, state, state)
    try:
        assert examined()[1]["triggers"]["message"] == "1 exist and match the code"
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER stator_reconcile")
            assert "disabled for testapp.Site" in warned("triggers")["message"]
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER stator_reconcile")
            assert warned("triggers") is None
            cursor.execute(f"DROP TRIGGER stator_reconcile ON {table}")
            assert "missing or disabled for testapp.Site" in warned("triggers")["message"]
        trigger.delay = 5
        with connection.schema_editor() as editor:
            trigger.database_forwards("testapp", editor, state, state)
        assert "does not match its graph and reconcile_on" in warned("triggers")["message"]
    finally:
        with connection.schema_editor() as editor:
            trigger.database_backwards("testapp", editor, state, state)


@pytest.mark.postgresql
def test_pooler_is_a_warning_where_workers_would_listen_through_it(monkeypatch, settings):
    assert postgresql.pooler("default", []).level == OK
    monkeypatch.setattr(session_of(connection), "direct", False)
    finding = postgresql.pooler("default", [])
    assert (finding.level, "LISTEN_DSN" in finding.remedy) == (WARN, True)
    settings.STATOR = {"LISTEN_DSN": "host=elsewhere"}
    assert postgresql.pooler("default", []).level == OK
