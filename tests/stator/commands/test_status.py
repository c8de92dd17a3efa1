"""Subcommands that show figures: status, errors, explain, workers; with limits on what is counted."""

import re

import pytest

from stator.extensions.progress.models import keep_progress, reached
from stator.models import History, Report, Worker
from stator.rows.workers import worker_of
from tests.stator.commands.errands import LABEL, asked, held, refused, run, undo_line
from tests.stator.making import ago, change, put, raw
from tests.testapp.explained import Errand, ErrandGraph
from tests.testapp.power import OrderGraph

pytestmark = pytest.mark.django_db(transaction=True)


def test_status_has_figures_of_every_kind():
    put(Errand, state_changed=ago(90))
    put(Errand, **held())
    # Its report is gone: reports are not kept for ever.
    put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-60))
    put(Errand, state_ready=False, state_crashes=3)
    put(Errand, state="done")
    Errand.stator.pause("heir")
    Worker.objects.create(id="a" * 12, host="oak", pid=7, version="1", models=["testapp.errand"], database="default")
    answer = asked("status", LABEL)
    (figures,) = answer["models"]
    assert figures["states"] == {"new": 4, "limited": 0, "outside": 0, "asked": 0, "heir": 0, "done": 1, "swept": 0}
    assert [figures[name] for name in ("ready", "leased", "failing", "quarantined")] == [1, 1, 1, 1]
    assert 89 < figures["oldest_ready"] < 120
    assert [pause["state"] for pause in figures["paused"]] == ["heir"]
    assert [(worker["id"], worker["status"]) for worker in answer["workers"]] == [("a" * 12, "alive")]
    text = run("status", LABEL)
    assert "testapp.Errand  1" in text
    assert "1 live worker, 0 attempts running" in text
    assert text.startswith("error")


def test_counts_that_ended_at_a_limit_are_marked(monkeypatch):
    for module in ("survey.depths", "survey.numbers", "extensions.problems.causes", "texts"):
        monkeypatch.setattr(f"stator.{module}.COUNTED", 2)
    for module in ("survey.depths", "survey.numbers"):
        monkeypatch.setattr(f"stator.{module}.LEASED", 2)
    for _ in range(4):
        put(Errand)
        put(Errand, **held())
    put(Errand, state="done")
    (figures,) = asked("status", LABEL)["models"]
    assert {"leased", "ready", "states.new"} < set(figures["capped"])
    assert not {"states.done", "failing", "quarantined"} & set(figures["capped"])
    line = next(line for line in run("status", LABEL).splitlines() if line.startswith(LABEL))
    # The model, how many are ready, how long the oldest one waits, and how many are claimed.
    assert [part for part in line.split() if "+" in part][:2] == ["2+", "2+"]
    assert "done 1" in line


def test_status_tells_how_long_moved_objects_had_been_in_their_states(monkeypatch):
    monkeypatch.setattr(OrderGraph.working, "expect_within", 30)
    own = {"model_label": "testapp.order", "object_pk": "1", "version": 1, "kind": "move", "source": "working"}
    for stay in (1, 2, 40, 3700):
        History.objects.create(**own, to="shipped", stay=stay)
    [stays] = asked("status", "testapp.Order")["models"][0]["stays"]
    assert [stays[name] for name in ("state", "moves", "p50", "p95", "burn")] == ["working", 4, 2.0, 3700.0, 0.5]
    lines = run("status", "testapp.Order", LABEL).splitlines()
    first = lines.index("Time in state, testapp.Order, of the last 4 moves:")
    assert re.split("  +", lines[first + 2]) == ["working", "4", "2 s", "1 h 1 m", "50 % (more than 30 s)", "-", "-"]
    assert "Time in state" not in run("status")


def test_status_shows_how_far_running_attempts_are():
    errand = put(Errand, **held(), state_attempted=ago(90))
    Worker.objects.create(id=worker_of(errand.state_claim), host="oak", pid=7, version="1", database="default")
    keep_progress("default", LABEL.lower(), [(errand.pk, errand.state_claim, reached(2, 8, "page 2"))])
    line = rf"\[#{{5}}\.{{15}}\] testapp.errand {errand.pk} in new for .*: 2 of 8 \(25 %\), page 2"
    assert re.search(line, run("status", LABEL))
    [ran] = asked("status", LABEL)["workers"][0]["runs"]
    assert ran["progress"] == {"done": 2.0, "total": 8.0, "percent": 25, "text": "page 2"}


# ``stator errors``: the errors of objects that still fail, in groups


def test_errors_are_grouped_and_one_group_is_retried_at_a_rate():
    errands = [put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-3600)) for _ in range(3)]
    for errand, error in zip(errands, ("OSError", "OSError", "KeyError"), strict=True):
        Report.objects.create(
            model_label="testapp.errand", object_pk=str(errand.pk), state="new", error=error, message="gone",
            fingerprint=error,
        )  # fmt: skip
    assert [(one["id"], one["failing"]) for one in asked("errors", LABEL)] == [("OSError", 2), ("KeyError", 1)]
    assert f"stator retry {LABEL} --error OSError --per-minute 60" in run("errors")
    told = run("retry", LABEL, "--error", "OSError", "--per-minute", 30)
    assert told == f"2 of {LABEL} become due within 4 s, 30 a minute.\n{undo_line()}"
    assert [raw(Errand).get(pk=errand.pk).state_failures for errand in errands] == [0, 0, 1]
    assert "--error chooses the objects by itself" in refused("retry", LABEL, "--error", "OSError", "--failed")


# ``stator explain``: why one object does not move, and which objects of a model need attention


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_explain_reads_the_database_that_was_asked_for_whatever_routers_say(settings):
    put(Errand, "other", state="done")
    command = ("explain", LABEL, 1, "--database", "other")
    assert asked(*command)["reasons"][0]["remedy"] in run(*command)
    assert run("explain", LABEL, 999, code=1) == "gone: no object has key 999.\n"
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
    assert len(asked("explain", LABEL, "--limit", 3)["objects"]) == 3
    text = run("explain", LABEL, "--limit", 3)
    assert re.search(rf"  {bad.pk}  quarantined, in new for \d+ s\n      Quarantined after 3 lost leases", text)
    assert "unknown_state: 2 objects\n      -> Move it to an existing state" in text
    assert text.endswith("There may be more; raise --limit 3.\n")
