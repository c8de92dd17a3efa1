"""``manage.py stator doctor`` finds what is wrong, says what to do, and tells it by its exit code."""

import io

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from tests.stator.commands.doctor.examining import examined

pytestmark = pytest.mark.django_db(transaction=True)


def test_healthy_site_is_all_ok(crew_of_all, calm):
    code, found = examined("--database", "default")
    assert {finding["level"] for finding in found.values()} == {"ok"}, found
    assert code == 0
    of_server = {"server", "transactions", "locks", "snapshots", "dead rows", "replication"}
    of_vendor = {
        "postgresql": {*of_server, "triggers", "partitions", "pooler"},
        "sqlite": {"sqlite"},
        "mysql": set(),
    }
    everywhere = {"database", "indexes", "states", "workers", "served", "troubles", "clock"}
    assert set(found) == everywhere | of_vendor[connection.vendor]
    out = io.StringIO()
    call_command("stator", "doctor", "--database", "default", stdout=out)
    assert "ok    default  workers: every model has a live worker" in out.getvalue()


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
    def fail(alias):
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr("stator.overview.survey.Fleet.of", fail)
    code, found = examined()
    assert (code, found["troubles"]["level"]) == (1, "fail")
    assert found["troubles"]["message"] == "could not be checked: canceling statement due to statement timeout"
    assert found["clock"]["level"] == "ok"
