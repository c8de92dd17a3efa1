"""Findings for what stands: leases that ran out, objects in trouble, and pauses."""

import pytest

from stator.db.interface import new_token, new_worker_id
from stator.models import Pause, Report
from tests.stator.commands.doctor.examining import examined
from tests.stator.commands.errands import asked
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand, ErrandGraph

pytestmark = pytest.mark.django_db(transaction=True)


def test_lease_that_nobody_reaps_is_a_failure(crew_of_all, settings):
    settings.STATOR = {**settings.STATOR, "LEASE": 3600, "REAP_INTERVAL": 600}
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(600))
    assert examined()[0] == 0
    put(Errand, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(1300))
    code, found = examined()
    assert (code, found["late leases"]["level"]) == (1, "fail")
    assert found["late leases"]["message"].startswith("testapp.Errand: 1 lease expired and not taken over")


def test_objects_in_trouble_have_the_level_of_the_overview(crew_of_all, monkeypatch):
    monkeypatch.setattr(ErrandGraph.new, "expect_within", 3600)
    put(Errand, state_crashes=3)
    put(Errand, state_ready=False, state_next_attempt=ago(-600), state_changed=ago(7200))
    failing = put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-60))
    Report.objects.create(model_label="testapp.errand", object_pk=str(failing.pk), state="new", error="OSError")
    code, found = examined()
    assert code == 1
    assert found["quarantined"]["message"].startswith("testapp.Errand: 1 quarantined")
    assert found["stuck"]["message"].startswith("testapp.Errand: 1 later than expected in new, up to 2 h")
    assert found["failing"]["message"] == "testapp.Errand: 1 failing in new with OSError"
    assert [found[code]["level"] for code in ("quarantined", "stuck", "failing")] == ["fail", "fail", "warn"]
    shown = asked("status")["troubles"]
    levels = {one["code"].replace("_", " "): {"error": "fail", "warning": "warn"}[one["level"]] for one in shown}
    assert levels == {code: found[code]["level"] for code in levels}
    assert "stator retry testapp.Errand --quarantined" in found["quarantined"]["remedy"]


def test_pauses_are_warnings(crew_of_all):
    Errand.stator.pause(reason="the bank is down", actor="ada")
    code, found = examined()
    assert (code, found["paused"]["level"]) == (0, "warn")
    raw(Pause).update(created=ago(100_000))
    finding = examined()[1]["stale pause"]
    assert finding["level"] == "warn"
    assert "paused: all states by ada for 1 d 3 h, without an end (the bank is down)" in finding["message"]


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


def test_due_rows_wait_for_a_worker_too():
    put(Errand, state_ready=False, state_next_attempt=ago(5))
    code, found = examined()
    assert (code, found["no worker"]["level"]) == (1, "fail")
