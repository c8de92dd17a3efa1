"""``manage.py stator doctor`` finds what is wrong, says what to do, and tells it by its exit code."""

from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection

from stator.db.interface import new_token, new_worker_id
from stator.extensions.problems.commands.doctor import servers, tables
from stator.extensions.problems.reasons import explain_counts
from stator.rows.readings import READINGS
from tests.stator.commands.doctor.examining import examined
from tests.stator.making import ago, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_healthy_site_is_all_ok(crew_of_all, calm):
    code, found = examined("--database", "default")
    assert {finding["level"] for finding in found.values()} == {"ok"}, found
    assert code == 0
    of_server = {"server", "transactions", "locks", "snapshots", "dead rows", "replication"}
    of_vendor = {"postgresql": {*of_server, "triggers", "partitions", "pooler"}, "sqlite": {"sqlite"}, "mysql": set()}
    everywhere = {"database", "indexes", "states", "workers", "served", "troubles", "clock"}
    assert set(found) == everywhere | of_vendor[connection.vendor]
    assert found["workers"]["message"] == "every model has a live worker"


def test_nothing_is_said_of_workers_that_nothing_shows(monkeypatch):
    monkeypatch.delitem(READINGS, "fleet", raising=False)
    errand = put(Errand, state_changed=ago(7200))
    _, found = examined("--database", "default")
    assert not {"workers", "served", "no worker"} & set(found)
    assert "no_worker" not in {one.code for one in errand.explain()}
    assert set(explain_counts(Errand.objects.all())) == {"in_line"}


def test_database_that_cannot_be_used_ends_the_examination(monkeypatch):
    def fail(*args):
        raise OperationalError("connection refused")

    monkeypatch.setattr("stator.worker.startup._check", fail)
    code, found = examined("--database", "default")
    assert (code, list(found)) == (1, ["database"])
    assert found["database"]["level"] == "fail"
    assert "connection refused" in found["database"]["message"]
    assert found["database"]["remedy"] == "check DATABASES['default']"


def test_look_that_cannot_be_taken_does_not_keep_the_others_from_being_told(crew_of_all, monkeypatch):
    def fail(connection):
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr("stator.extensions.problems.survey.refusal_of_writes", fail)
    code, found = examined()
    assert (code, found["unread"]["level"]) == (1, "fail")
    assert "OperationalError: canceling statement due to statement timeout" in found["unread"]["message"]
    assert found["clock"]["level"] == "ok"


# The check of clocks


@pytest.mark.postgresql
def test_clocks_that_are_apart_are_a_warning(monkeypatch):
    [finding] = servers.skew("default", [])
    assert finding.level == "ok"
    real = servers.time.time
    monkeypatch.setattr(servers, "time", SimpleNamespace(time=lambda: real() + 60))
    [finding] = servers.skew("default", [])
    assert (finding.level, "60" in finding.sentence) == ("warning", True)


@pytest.mark.postgresql
def test_clocks_of_nodes_that_are_apart_are_a_warning(monkeypatch):
    now = servers.time.time()
    for apart, levels in ((0.5, ["ok", "ok"]), (3.0, ["ok", "ok", "warning"])):
        told = [("node a:5432: ", [(now,)]), ("node b:5432: ", [(now + apart,)])]
        monkeypatch.setattr(servers, "ask", lambda alias, statement, told=told: told)
        found = servers.skew("default", [])
        assert [finding.level for finding in found] == levels
        assert found[0].sentence.startswith("node a:5432: ")
    assert "the clocks of the nodes are 3.0 s apart" in found[2].sentence


# Findings for what stands: leases that ran out, objects in trouble, and pauses


def test_lease_that_nobody_reaps_is_a_failure(crew_of_all, settings):
    settings.STATOR = {**settings.STATOR, "LEASE": 3600, "REAP_INTERVAL": 600}
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(600))
    assert examined()[0] == 0
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(1300))
    code, found = examined()
    assert (code, found["late leases"]["level"]) == (1, "fail")
    assert found["late leases"]["message"].startswith("testapp.Errand: 1 lease expired and not taken over")


# Checks for models without a live worker


def test_missing_worker_is_a_warning_until_something_waits_for_one():
    code, found = examined()
    assert (code, found["workers"]["level"]) == (0, "warn")
    assert examined("--strict")[0] == 1
    put(Errand)
    code, found = examined()
    assert (code, found["no worker"]["level"]) == (1, "fail")
    # One fact is one finding; the other models are another.
    assert "testapp.Errand" not in found["workers"]["message"]
    assert found["no worker"]["message"].startswith("testapp.Errand: 1 waits, but no live worker serves it")
    assert found["no worker"]["remedy"] == "start manage.py runstator (manage.py runstator)"


def test_database_of_another_vendor_is_named_where_it_cannot_be_looked_at(monkeypatch):
    monkeypatch.setattr(tables, "connections", {"default": SimpleNamespace(vendor="oracle")})
    finding = tables.indexes("default", [])
    assert (finding.level, finding.sentence) == ("ok", "not checked on oracle")
