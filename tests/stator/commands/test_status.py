"""``stator status``: figures of every model, with limits on what is counted."""

import re

import pytest

from stator.commands import status
from stator.models import History, Worker
from stator.rows.progress import keep_progress, reached
from stator.rows.workers import worker_of
from tests.stator.commands.errands import LABEL, asked, held, run
from tests.stator.making import ago, put
from tests.testapp.explained import Errand
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
    problems, tables, *_ = text.split("\n\n")
    assert problems.startswith("error")
    assert tables.splitlines()[0].split() == status.HEADS


def test_counts_that_ended_at_a_limit_are_marked(monkeypatch):
    for module in ("overview.depths", "explain.survey", "explain.causes", "texts"):
        monkeypatch.setattr(f"stator.{module}.COUNTED", 2)
    for module in ("overview.depths", "explain.survey"):
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


def test_status_counts_pauses_that_are_alike():
    put(Errand)
    for tenant in range(29):
        Errand.stator.pause(where={"tenant": tenant})
    Errand.stator.pause("heir")
    assert " where x29,heir " in run("status", LABEL)


def test_status_tells_how_long_moved_objects_had_been_in_their_states(monkeypatch):
    monkeypatch.setattr(OrderGraph.working, "expect_within", 30)
    monkeypatch.setattr(OrderGraph.working, "attempt_immediately", True)
    assert asked("status", "testapp.Order")["models"][0]["stays"] == []
    assert "Time in state" not in run("status", "testapp.Order")
    own = {"model_label": "testapp.order", "version": 1, "kind": "move"}
    for source, stay in [("waiting", 0.25), *(("working", seconds) for seconds in (1, 2, 40, 3700)), ("working", None)]:
        first = {"attempts": 1, "duration": 1} if source == "working" else {}
        History.objects.create(**own, object_pk="1", source=source, to="shipped", stay=stay, **first)
    none, some = {"start50": None, "start95": None}, {"start50": 1.0, "start95": 3699.0}
    assert asked("status", "testapp.Order")["models"][0]["stays"] == [
        {"state": "waiting", "moves": 1, "p50": 0.25, "p95": 0.25, "expected": None, "burn": None, **none},
        {"state": "working", "moves": 4, "p50": 2.0, "p95": 3700.0, "expected": 30, "burn": 0.5, **some},
    ]
    lines = run("status", "testapp.Order", LABEL).splitlines()
    first = lines.index("Time in state, testapp.Order, of the last 5 moves:")
    started = ["half started within", "95 % started within"]
    assert [re.split("  +", line) for line in lines[first + 1 : first + 5]] == [
        ["state", "moves", "half within", "95 % within", "longer than expected", *started],
        ["waiting", "1", "250 ms", "250 ms", "-", "-", "-"],
        ["working", "4", "2 s", "1 h 1 m", "50 % (more than 30 s)", "1 s", "1 h 1 m"],
        [""],
    ]
    assert "Time in state" not in run("status")


def test_status_shows_how_far_running_attempts_are():
    errand = put(Errand, **held(), state_attempted=ago(90))
    Worker.objects.create(id=worker_of(errand.state_claim), host="oak", pid=7, version="1", database="default")
    keep_progress("default", LABEL.lower(), [(errand.pk, errand.state_claim, reached(2, 8, "page 2"))])
    line = rf"\[#{{5}}\.{{15}}\] testapp.errand {errand.pk} in new for .*: 2 of 8 \(25 %\), page 2"
    assert re.search(line, run("status", LABEL))
    [ran] = asked("status", LABEL)["workers"][0]["runs"]
    assert ran["progress"] == {"done": 2.0, "total": 8.0, "percent": 25, "text": "page 2"}
