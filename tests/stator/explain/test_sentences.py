"""The sentences of reasons: what each says of one object, with its numbers."""

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from stator.extensions.pauses.models import pause_objects
from stator.models import Action, History, Report, Worker
from tests.stator.explain.errands import WORKER, codes, first, held, report
from tests.stator.making import ago, change, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


def test_external_with_and_without_its_timeout(crew):
    reason = first(put(Errand, state="outside", state_changed=ago(86400 - 5)))
    assert reason.code == "external"
    assert "it times out to done in 2 d" in reason.sentence
    assert reason.numbers["times_out_in"] == pytest.approx(2 * 86400, abs=10)
    late = first(put(Errand, state="outside", state_changed=ago(3 * 86400 + 2.5))).sentence
    assert re.search(r"timed out \d+ s ago", late)
    reason = first(put(Errand, state="asked"))
    assert (reason.code, reason.numbers) == ("external", {})
    assert "once a condition holds" in reason.sentence


def test_quarantined_with_how_its_workers_ended(crew):
    errand = put(Errand, state_crashes=3, state_ready=True)
    for number, code in enumerate([-9, -9, 1]):
        dead, row = f"{number:012x}", {"version": "1", "models": [], "database": "default", "host": "oak"}
        Worker.objects.create(id=dead, pid=100 + number, **row)
        Worker.objects.create(
            id=f"f{number:011x}",
            pid=200 + number,
            published={"replaced": {"pid": 100 + number, "exit_code": code}},
            **row,
        )
        History.objects.create(
            model_label="testapp.errand", object_pk=str(errand.pk), version=1, kind=History.Kind.ERROR,
            source=errand.state, worker=dead, fingerprint="lease_lost",
        )  # fmt: skip
    reason = first(errand)
    assert reason.sentence == (
        "Quarantined after 3 lost leases in a row: 3 workers died while they attempted it "
        "(exit 137, SIGKILL: out of memory? 2 times, exit 1); retry it after the cause is fixed."
    )
    assert reason.numbers["endings"] == {"exit 137, SIGKILL: out of memory?": 2, "exit 1": 1}


def test_what_the_handler_last_said(crew):
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-60))
    report(errand, message="DNS not propagated", times=12)
    assert str(first(errand)) == 'Waiting because its handler said "DNS not propagated" (12 times).'
    assert codes(errand) == ["last_said", "not_due"]
    Report.objects.update(state="heir")
    assert codes(errand) == ["not_due"]


def test_reason_of_an_attempt_before_the_latest_is_over(crew):
    """As of a schedule that waited for a queue and has fired since."""
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-60))
    report(errand, message="the queue takes no tasks")
    change(errand, state_attempted=ago(30))
    Report.objects.update(at=ago(20))
    assert codes(errand) == ["last_said", "not_due"]
    assert Errand.stator.explain_counts() == {"last_said": 1}
    change(errand, state_attempted=ago(10))
    assert codes(errand) == ["not_due"]
    assert Errand.stator.explain_counts() == {"not_due": 1}


def test_backoff_after_errors(crew):
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-90), state_failures=3)
    report(errand, error="OSError", message="no route to host")
    reason = first(errand)
    assert re.fullmatch(
        r"Backing off after 3 errors, the last one OSError: no route to host; next attempt in 1 m \d+ s\.",
        reason.sentence,
    )
    assert (reason.code, reason.numbers["failures"], reason.numbers["error"]) == ("backoff", 3, "OSError")


def test_leased_by_a_worker_that_is_known(crew):
    raw(Worker).update(heartbeat=Now() - timedelta(seconds=2))
    reason = first(put(Errand, **held()))
    assert reason.code == "leased"
    assert re.match(
        rf"Leased by worker {WORKER} \(process 4242 on oak, heartbeat \d+ s ago\) since \d+ s", reason.sentence
    )
    assert (reason.numbers["worker"], reason.numbers["host"], reason.numbers["pid"]) == (WORKER, "oak", 4242)
    assert reason.numbers["until"] == pytest.approx(60, abs=40)


def test_place_in_line_is_counted_up_to_a_bound(crew, monkeypatch):
    errands = [put(Errand, state_changed=ago(100 - number)) for number in range(5)]
    assert [str(first(errand)) for errand in errands[:3]] == [
        "Ready, and next in line.", "Ready, with 1 object before it.", "Ready, with 2 objects before it.",
    ]  # fmt: skip
    monkeypatch.setattr("stator.extensions.problems.facts.LINE", 3)
    monkeypatch.setattr("stator.extensions.problems.sentences.LINE", 3)
    reason = first(errands[4])
    assert (str(reason), reason.numbers) == ("Ready, with more than 3 objects before it.", {"more_than": 3})
    limited = put(Errand, state="limited")
    assert first(limited).numbers == {"ahead": 0}


@pytest.mark.parametrize(
    "values", [{"stopped": Now()}, {"heartbeat": Now() - timedelta(seconds=31)}, {"models": ["testapp.line"]}]
)
def test_no_live_worker(crew, values):
    errand = put(Errand)
    assert first(errand).code == "in_line"
    raw(Worker).update(**values)
    reason = first(errand)
    assert reason.code == "no_worker"
    assert "No live worker serves testapp.Errand" in reason.sentence


def test_row_that_was_deleted_is_gone():
    errand = put(Errand)
    raw(Errand).all().delete()
    assert codes(errand) == ["gone"]


def test_pause_of_named_objects_is_told_of_the_object_and_not_as_a_lookup(crew):
    errand, other = put(Errand), put(Errand)
    pause_objects(Errand, "default", [errand.pk, other.pk], Action.of(Errand, "pause", "anna", "asked"))
    assert str(first(errand)) == "Paused by anna: this object, until it is resumed: asked."
