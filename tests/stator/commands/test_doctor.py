"""``manage.py stator doctor`` finds what is wrong, says what to do, and tells it by its exit code."""

import io
import json
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from stator.commands.doctor import clocks, crew, postgresql, tables
from stator.commands.doctor.finding import FAIL, OK, WARN
from stator.db.claim import new_token, new_worker_id
from stator.indexes import own_indexes
from stator.models import StatorModel, Worker
from stator.runner import managed
from tests.stator.rows import ago, change, put
from tests.testapp.explained import Errand

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
    assert {"database", "indexes", "states", "leases", "workers", "clock"} <= set(found)
    out = io.StringIO()
    call_command("stator", "doctor", "--database", "default", stdout=out)
    assert "ok    default  workers: every model has a live worker" in out.getvalue()


def test_missing_worker_is_a_warning_until_something_waits_for_one():
    code, found = examined()
    assert (code, found["workers"]["level"]) == (0, WARN)
    assert examined("--strict")[0] == 1
    put(Errand)
    code, found = examined()
    assert (code, found["workers"]["level"]) == (1, FAIL)
    assert "testapp.Errand" in found["workers"]["message"]
    assert found["workers"]["remedy"]


def test_due_rows_wait_for_a_worker_too():
    put(Errand, state_ready=False, state_next_attempt=ago(5))
    assert crew.live_workers("default", [Errand]).level == FAIL


def test_lease_that_nobody_reaps_is_a_failure(crew_of_all):
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(5))
    assert examined()[0] == 0
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(60))
    code, found = examined()
    assert (code, found["leases"]["level"]) == (1, FAIL)
    assert "testapp.Errand 1" in found["leases"]["message"]


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

    monkeypatch.setattr("stator.startup._check", fail)
    code, found = examined("--database", "default")
    assert (code, list(found)) == (1, ["database"])
    assert found["database"]["level"] == FAIL
    assert "connection refused" in found["database"]["message"]
    assert found["database"]["remedy"] == "check DATABASES['default']"


@pytest.mark.postgresql
def test_clocks_that_are_apart_are_a_warning(monkeypatch):
    assert clocks.skew("default").level == OK
    real = clocks.time.time
    monkeypatch.setattr(clocks, "time", SimpleNamespace(time=lambda: real() + 60))
    finding = clocks.skew("default")
    assert (finding.level, "60" in finding.message) == (WARN, True)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (postgresql.long_transactions, [(7, "ada", "idle in transaction", 4000.0)], "session 7 of ada"),
        (postgresql.oldest_snapshot, [("replication slot gone", 5_000_000)], "replication slot gone keeps"),
        (lambda alias: postgresql.dead_rows(alias, [Errand]), [("testapp_errand", 90_000, 5)], "90,000"),
        (postgresql.pooler, [(-1,)], "one between here and the database"),
    ],
)
def test_trouble_of_postgresql_is_a_warning_with_a_remedy(monkeypatch, check, answer, words):
    connection.ensure_connection()
    assert check("default").level == OK
    monkeypatch.setattr(postgresql, "_ask", lambda *args: answer)
    finding = check("default")
    assert finding.level == WARN
    assert words in finding.message
    assert finding.remedy
