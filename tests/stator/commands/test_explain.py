"""``stator explain``: why one object does not move, and which objects of a model need attention."""

import re

import pytest

from stator.explain.kinds import kind_of
from stator.models import Report, Worker
from tests.stator.commands.errands import LABEL, asked, held, run
from tests.stator.making import ago, change, put
from tests.testapp.explained import Errand, ErrandGraph

pytestmark = pytest.mark.django_db(transaction=True)


def test_explain_gives_the_reasons_in_words_and_as_json():
    errand = put(Errand, state="done")
    remedy = kind_of("terminal").remedy
    assert run("explain", LABEL, errand.pk) == (
        f"terminal: done is a terminal state: the object stays here.\n      -> {remedy}\n"
    )
    answer = asked("explain", LABEL, errand.pk)
    assert (answer["model"], answer["pk"], answer["reasons"][0]["code"]) == (LABEL, str(errand.pk), "terminal")
    assert answer["reasons"][0]["remedy"] == remedy


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_explain_reads_the_database_that_was_asked_for_whatever_routers_say(settings):
    put(Errand, "other", state="done")
    command = ("explain", LABEL, 1, "--database", "other")
    assert asked(*command)["reasons"][0]["code"] == "terminal"
    settings.DATABASE_ROUTERS = [Homeward()]
    assert asked(*command)["reasons"][0]["code"] == "terminal"


class Homeward:
    """Sends every write home."""

    def db_for_write(self, model, **hints):
        return "default"


def test_explain_without_a_key_names_the_objects_that_somebody_should_look_at(monkeypatch):
    put(Errand)
    put(Errand, state="done")
    put(Errand, state_ready=False, state_next_attempt=ago(-600))
    assert run("explain", LABEL).startswith("error    testapp.Errand: 2 wait, but no live worker serves it")
    Worker.objects.create(id="b" * 12, host="h", pid=1, version="1", models=[LABEL.lower()], database="default")
    assert run("explain", LABEL) == "No object of testapp.Errand needs attention.\n"
    late = put(Errand, state_changed=ago(600))
    due = put(Errand, state_ready=False, state_next_attempt=ago(600))
    lost = put(Errand, **held(-60))
    failing = put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-60))
    Report.objects.create(model_label="testapp.errand", object_pk=str(failing.pk), state="new", error="OSError")
    bad = put(Errand, state_ready=False, state_crashes=3)
    ready, resting = put(Errand), put(Errand, state_ready=False)
    for each in (ready, resting):
        change(each, state="mislaid")
    monkeypatch.setattr(ErrandGraph.new, "expect_within", 3600)
    stuck = put(Errand, state_ready=False, state_next_attempt=ago(-600), state_changed=ago(7200))
    found = asked("explain", LABEL)["objects"]
    assert [(one["pk"], one["what"]) for one in found] == [
        (str(each.pk), what)
        for each, what in (
            (resting, "unknown state"), (ready, "unknown state"), (bad, "quarantined"), (lost, "lease ran out"),
            (failing, "failing"), (stuck, "stuck"), (late, "overdue"), (due, "overdue"),
        )
    ]  # fmt: skip
    assert found[2]["reasons"][0]["code"] == "quarantined"
    text = run("explain", LABEL, "--limit", 3)
    assert re.search(rf"  {bad.pk}  quarantined, in new for \d+ s\n      Quarantined after 3 lost leases", text)
    assert "unknown_state: 2 objects\n      -> Move it to an existing state" in text
    assert text.endswith("There may be more; raise --limit 3.\n")
