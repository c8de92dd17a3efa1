"""``manage.py stator``: what each subcommand answers to good input, and how it refuses bad input."""

import getpass
import io
import re
import subprocess
import sys
from contextlib import redirect_stderr
from datetime import timedelta
from functools import partial
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command

from stator.commands import SUBCOMMANDS, graph, status
from stator.db.interface import new_token, new_worker_id
from stator.explain import Reason
from stator.explain.reasons import REASONS
from stator.graph import drawing
from stator.models import Depth, History, Pause, Report, Stats, Worker
from stator.rows.statistics import Stay
from tests import commanding
from tests.processes import environment_for_subprocess
from tests.stator.making import ago, change, put, raw
from tests.testapp.explained import Errand, ErrandGraph
from tests.testapp.keys import Branch
from tests.testapp.power import OrderGraph

pytestmark = pytest.mark.django_db(transaction=True)

LABEL = "testapp.Errand"


run, asked, refused = (partial(call, "stator") for call in (commanding.run, commanding.asked, commanding.refused))


def held(seconds=60):
    return {"state_claim": new_token(new_worker_id()), "state_locked_until": ago(-seconds), "state_ready": False}


def state_of(errand):
    return raw(Errand).get(pk=errand.pk).state


# explain


def test_explain_gives_the_reasons_in_words_and_as_json():
    errand = put(Errand, state="done")
    remedy = REASONS[0].remedy
    assert run("explain", LABEL, errand.pk) == (
        f"terminal: done is a terminal state: the object stays here.\n      -> {remedy}\n"
    )
    answer = asked("explain", LABEL, errand.pk)
    assert (answer["model"], answer["pk"], answer["reasons"][0]["code"]) == (LABEL, str(errand.pk), "terminal")
    assert answer["reasons"][0]["remedy"] == remedy


def test_explain_gives_what_the_model_itself_says(monkeypatch):
    """A model may know more than the framework does, and a child more than the model whose table has the state."""
    monkeypatch.setattr(Errand, "explain", lambda errand: [Reason("raining", f"It rains on {errand.name}.")])
    errand = put(Errand, name="Rome")
    assert run("explain", LABEL, errand.pk) == "raining: It rains on Rome.\n"
    monkeypatch.setattr(Branch, "explain", lambda branch: [Reason("own", branch.leaf)])
    branch = Branch.objects.create(leaf="oak")
    assert asked("explain", "testapp.Branch", branch.pk)["reasons"][0]["sentence"] == "oak"


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
            (ready, "unknown state"), (resting, "unknown state"), (bad, "quarantined"), (lost, "lease ran out"),
            (failing, "failing"), (stuck, "stuck"), (late, "overdue"), (due, "overdue"),
        )
    ]  # fmt: skip
    assert found[2]["reasons"][0]["code"] == "quarantined"
    text = run("explain", LABEL, "--limit", 3)
    assert re.search(rf"  {bad.pk}  quarantined, in new for \d+ s\n      Quarantined after 3 lost leases", text)
    assert "unknown_state: 2 objects\n      -> Move it to an existing state" in text
    assert text.endswith("There may be more; raise --limit 3.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "x;drop table", "1"], "is not a model; managed models are:"),
        (["explain", "", "1"], "is not a model"),
        (["explain", "errand", "1"], "'errand' is not a model; did you mean testapp.Errand?"),
        (["explain", "testapp.Erand", "1"], "did you mean testapp.Errand?"),
        (["explain", LABEL, "--limit", "0"], "--limit 0 must be from 1"),
        (["explain", "auth.User", "1"], "is not managed by Stator"),
        (["explain", LABEL, "one"], "'one' cannot be the primary key of testapp.Errand"),
        (["unlock", LABEL, "9" * 30], "cannot be the primary key of testapp.Errand"),
        (["pause", LABEL, "--where", "tenant__lt=1e400"], "cannot be stored as JSON"),
        (["explain", LABEL, "1", "--database", "nowhere"], "--database 'nowhere' is not in DATABASES"),
        (["retry", LABEL], "this retries every object of testapp.Errand; add --yes, or choose objects"),
        (["retry", LABEL, "--state", "nowhere"], "'nowhere' is not a state of ErrandGraph"),
        (["retry", LABEL, "--limit", "0"], "--limit 0 must be from 1"),
        (["unlock", LABEL, "a\x1b[31m"], "'a\\x1b[31m' cannot be the primary key"),
        (["move", LABEL, "nowhere", "1", "--reason", "r"], "'nowhere' is not a state"),
        (["move", LABEL, "done", "1", "--reason", ""], "--reason is empty; give a reason"),
        (["move", LABEL, "done", "1", "--reason", "  "], "--reason is empty; give a reason"),
        (["pause", LABEL, "--state", "nowhere"], "'nowhere' is not a state"),
        (["pause", LABEL, "--where", "tenant"], "--where 'tenant' must be NAME=VALUE"),
        (["pause", LABEL, "--where", "tenent=3"], "does not fit testapp.Errand: Cannot resolve keyword 'tenent'"),
        (["pause", LABEL, "--where", "tenant=three"], "does not fit testapp.Errand"),
        (["pause", LABEL, "--for", "-1"], "--for -1.0 must be above 0"),
        (["pause", LABEL, "--for", "nan"], "--for nan must be above 0"),
        (["resume", LABEL, "--state", "nowhere"], "'nowhere' is not a state"),
        (["resume", LABEL, "--where", "tenent=3"], "does not fit testapp.Errand"),
        (["status", "--watch", "--every", "0"], "--every 0.0 must be above 0"),
        (["status", "nowhere.Nothing"], "is not a model"),
        (["graph", "nowhere"], "is not a model"),
        (["doctor", "--database", "nowhere"], "is not in DATABASES"),
        (["workers", "--database", "nowhere"], "is not in DATABASES"),
        (["prune", "--database", "nowhere"], "is not in DATABASES"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message):
    put(Errand)
    assert message in refused(*arguments)
    assert not Pause.objects.exists()
    assert not History.objects.exists()


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["explain"], ["graph", LABEL, "--format", "png"], ["move", LABEL, "done", "1"]]
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments, subprocess_environment):
    command = [sys.executable, "-m", "django", "stator", *arguments]
    ended = subprocess.run(command, env=subprocess_environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.strip().splitlines()) == 1
    assert ended.stderr.startswith("stator: ")


def test_refusal_on_the_command_line_has_exit_code_2_and_no_traceback(subprocess_environment):
    command = [sys.executable, "-m", "django", "stator", "explain", "no.Model", "1"]
    ended = subprocess.run(command, env=subprocess_environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.strip().splitlines()) == 1


def test_database_that_is_away_is_one_line_and_exit_code_75(tmp_path):
    away = environment_for_subprocess(DATABASE_URL=f"sqlite:///{tmp_path}/none/here.sqlite3", TEST_DATABASE_DEFAULT="")
    command = [sys.executable, "-m", "django", "stator", "explain", LABEL, "1"]
    ended = subprocess.run(command, env=away, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 75, ended.stderr
    assert "the database cannot be used" in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr


# Acts


def test_retry_of_named_rows_records_the_user():
    errands = [put(Errand, state_ready=False, state_failures=3, state_next_attempt=ago(-600)) for _ in range(3)]
    named = asked("retry", LABEL, errands[0].pk, errands[1].pk)
    assert named == {"model": LABEL, "named": 2, "missing": [], "retried": 2}
    assert Errand.stator.ready().count() == 2
    assert set(History.objects.values_list("actor", "reason")) == {(getpass.getuser(), "retried")}
    told = run("retry", LABEL, "--failed")
    assert told.startswith("1 of testapp.Errand is due now.\nIt is not attempted yet: No live worker serves"), told


def test_retry_by_state_condition_limit_and_of_all():
    for number in range(3):
        put(Errand, state_ready=False, state_crashes=number + 1, state_failures=number)
    put(Errand, state="heir", state_ready=False)
    put(Errand, state="done")
    assert asked("retry", LABEL, "--quarantined")["retried"] == 1
    assert asked("retry", LABEL, "--state", "heir")["retried"] == 1
    assert asked("retry", LABEL, "--state", "new", "--limit", "2")["retried"] == 2
    assert asked("retry", LABEL, "--yes")["retried"] == 4


def test_unlock_ends_claims_of_named_rows():
    errand, other = put(Errand, **held()), put(Errand, **held())
    unlocked = asked("unlock", LABEL, errand.pk)
    assert unlocked.pop("may_run")[0].startswith(f"{errand.pk}: attempt 0, which began")
    assert unlocked == {"model": LABEL, "named": 1, "missing": [], "unlocked": 1}
    assert set(Errand.stator.leased()) == {other}
    assert run("unlock", LABEL, errand.pk) == "0 of 1 unlocked: it is not claimed.\n"
    told = run("unlock", LABEL, errand.pk, other.pk)
    assert told.startswith(f"1 of 2 unlocked: the other is not claimed.\nIt may still run: {other.pk}: attempt 0"), told


def test_move_records_who_and_why():
    errand = put(Errand)
    assert run("move", LABEL, "done", errand.pk, "--reason", "asked for") == "1 of 1 moved to done.\n"
    assert state_of(errand) == "done"
    entry = History.objects.get()
    assert (entry.actor, entry.reason, entry.to) == (getpass.getuser(), "asked for", "done")


def test_move_of_a_state_takes_all_of_it_even_if_the_code_does_not_know_it():
    lost = [put(Errand) for _ in range(3)]
    for errand in lost:
        change(errand, state="mislaid")
    other = put(Errand)
    given = ("move", LABEL, "done", "--state", "mislaid", "--reason", "renamed")
    assert run(*given, "--limit", 2) == f"2 of {LABEL} moved from mislaid to done.\n"
    assert asked(*given)["moved"] == 1
    assert {state_of(errand) for errand in lost} == {"done"}
    assert state_of(other) == "new"
    assert "choose objects: either their keys, or --state OLD" in refused("move", LABEL, "done", "--reason", "r")


def test_unlock_tells_what_may_still_run_and_pauses_if_asked():
    errand = put(Errand, **held())
    told = run("unlock", LABEL, errand.pk, "--pause", "--reason", "runs wild")
    assert "1 of 1 unlocked and paused." in told
    assert f"It may still run: {errand.pk}: attempt" in told
    assert Pause.objects.active().get().where == {"pk__in": [errand.pk]}
    assert not Errand.stator.ready().exists()


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
    assert told == f"2 of {LABEL} become due within 4 s, 30 a minute.\n"
    assert [raw(Errand).get(pk=errand.pk).state_failures for errand in errands] == [0, 0, 1]
    assert "--error chooses the objects by itself" in refused("retry", LABEL, "--error", "OSError", "--failed")


def test_move_to_a_state_that_only_the_framework_enters_is_refused(monkeypatch):
    monkeypatch.setattr(ErrandGraph.done, "enter_by_hand", False)
    errand = put(Errand)
    told = refused("move", LABEL, "done", errand.pk, "--reason", "asked for")
    assert told.startswith(
        "ErrandGraph.done can be entered only by the framework, not by hand; you can move objects to new,"
    )
    assert state_of(errand) == "new"


def test_keys_that_no_object_has_are_named_with_exit_code_1():
    errand, gone = put(Errand, **held()), 10**6
    nobody = f"no object has key {gone}"
    move = ("move", "--reason", "asked for", LABEL, "done")
    assert run(*move, gone, code=1) == f"0 of 1 moved to done: {nobody}.\n"
    assert run("retry", LABEL, gone, code=1) == f"0 of 1 made due: {nobody}.\n"
    assert run("unlock", LABEL, gone, code=1) == f"0 of 1 unlocked: {nobody}.\n"
    assert run("explain", LABEL, gone, code=1) == f"gone: {nobody}.\n"
    assert asked("explain", LABEL, gone, code=1)["reasons"][0]["code"] == "gone"
    assert run("retry", LABEL, gone, errand.pk, code=1) == (
        f"0 of 2 made due: {nobody}; the other is held, or in a state that workers do not attempt.\n"
    )
    answer = asked(*move, errand.pk, gone, gone + 1, code=1)
    assert answer == {"model": LABEL, "state": "done", "named": 3, "missing": [str(gone), str(gone + 1)], "moved": 1}
    assert state_of(errand) == "done"
    keys = range(gone, gone + 22)
    told = f"0 of 22 moved to done: no object has key {', '.join(map(str, keys[:20]))} or 2 others.\n"
    assert run(*move, *keys, code=1) == told


def test_key_that_is_given_twice_counts_once():
    errand = put(Errand)
    assert run("move", LABEL, "done", errand.pk, errand.pk, "--reason", "r") == "1 of 1 moved to done.\n"


def test_pause_and_resume():
    answer = asked("pause", LABEL, "--state", "new", "--where", "tenant=3", "--reason", "moving", "--for", "60")
    assert (answer["model"], answer["state"], answer["where"]) == ("testapp.errand", "new", {"tenant": 3})
    assert (answer["reason"], answer["actor"]) == ("moving", getpass.getuser())
    assert answer["until"]
    assert run("pause", LABEL) == "Paused testapp.errand until it is resumed.\n"
    assert run("pause", LABEL, "--where", "name=abc").startswith("Paused testapp.errand {'name': 'abc'} until")
    assert asked("resume", LABEL, "--state", "new", "--where", "tenant=3") == {"model": LABEL, "resumed": 1}
    assert run("resume", LABEL) == "2 pauses of testapp.Errand ended.\n"


def test_user_without_a_name_is_a_number(monkeypatch):
    def nobody():
        raise KeyError("getpwuid")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert asked("pause", LABEL)["actor"].startswith("user ")


# Looking


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
    assert text.splitlines()[0].split() == status.HEADS


def test_status_counts_pauses_that_are_alike():
    put(Errand)
    for tenant in range(29):
        Errand.stator.pause(where={"tenant": tenant})
    Errand.stator.pause("heir")
    assert " where x29,heir " in run("status", LABEL)


def test_status_of_all_models_takes_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr("stator.overview.depths.COUNTED", 2)
    for _ in range(5):
        put(Errand, state="done")
    (figures,) = asked("status", LABEL)["models"]
    assert figures["states"]["done"] == 3
    assert "done 2+" in run("status", LABEL)
    assert len(asked("status")["models"]) > 5
    lines = run("status").splitlines()
    assert lines[1].split()[0] == LABEL
    assert lines[2].endswith("models without objects not listed")


def test_status_counts_what_is_stuck_and_what_is_in_unknown_states(monkeypatch):
    monkeypatch.setattr(ErrandGraph.new, "expect_within", 3600)
    put(Errand, state_changed=ago(7200))
    change(put(Errand), state="mislaid")
    (figures,) = asked("status", LABEL)["models"]
    assert (figures["stuck"], figures["unknown"]) == (1, 1)


def test_workers_are_listed_with_what_became_of_them():
    assert asked("workers") == []
    assert "No worker was active" in run("workers")
    for number, values in enumerate([{}, {"stopped": ago(5)}, {}]):
        Worker.objects.create(
            id=str(number) * 12, host="oak", pid=7, version="1", models=["testapp.errand"], database="default", **values
        )
    raw(Worker).filter(pk="2" * 12).update(heartbeat=ago(100))
    found = {worker["id"][0]: worker["status"] for worker in asked("workers", "--database", "default")}
    assert found == {"0": "alive", "1": "stopped", "2": "gone"}
    assert "testapp.errand" in run("workers")


def test_status_tells_the_time_in_states_by_edge_as_json():
    assert asked("status", LABEL)["models"][0]["time_in_state"] == []
    for to, seconds, longest in (("done", 30.0, 20.0), ("failed", 5.0, 5.0)):
        Stats.add("default", "testapp.errand", "new", to, shard=1, handled=2, stays=[Stay(seconds, longest)])
    assert asked("status", LABEL)["models"][0]["time_in_state"] == [
        {"from": "new", "to": "done", "moves": 2, "average": 15.0, "longest": 20.0},
        {"from": "new", "to": "failed", "moves": 2, "average": 2.5, "longest": 5.0},
    ]


def test_status_tells_how_long_moved_objects_had_been_in_their_states(monkeypatch):
    monkeypatch.setattr(OrderGraph.working, "expect_within", 30)
    assert asked("status", "testapp.Order")["models"][0]["stays"] == []
    assert "Time in state" not in run("status", "testapp.Order")
    own = {"model_label": "testapp.order", "version": 1, "kind": "move"}
    for source, stay in [("waiting", 0.25), *(("working", seconds) for seconds in (1, 2, 40, 3700)), ("working", None)]:
        History.objects.create(**own, object_pk="1", source=source, to="shipped", stay=stay)
    assert asked("status", "testapp.Order")["models"][0]["stays"] == [
        {"state": "waiting", "moves": 1, "p50": 0.25, "p95": 0.25, "expected": None, "burn": None},
        {"state": "working", "moves": 4, "p50": 2.0, "p95": 3700.0, "expected": 30, "burn": 0.5},
    ]
    lines = run("status", "testapp.Order", LABEL).splitlines()
    first = lines.index("Time in state, testapp.Order, of the last 5 moves:")
    assert [re.split("  +", line) for line in lines[first + 1 : first + 5]] == [
        ["state", "moves", "half within", "95 % within", "longer than expected"],
        ["waiting", "1", "250 ms", "250 ms", "-"],
        ["working", "4", "2 s", "1 h 1 m", "50 % (more than 30 s)"],
        [""],
    ]
    assert "Time in state" not in run("status")


def test_prune_deletes_what_is_old_enough():
    report = Report.objects.create(model_label="testapp.errand", object_pk="1", state="new")
    raw(Report).filter(pk=report.pk).update(at=ago(400 * 86400))
    Report.objects.create(model_label="testapp.errand", object_pk="2", state="new")
    assert asked("prune") == {"deleted": {"default": 1}, "thinned": {"default": 0}, "merged": {"default": 0}}
    assert run("prune") == "0 rows deleted from default\n"


def test_prune_leaves_one_sample_of_each_hour():
    start = ago(3 * 86400).replace(minute=0, second=0, microsecond=0)
    for minute in range(5):
        Depth.objects.create(model_label="testapp.errand", minute=start + timedelta(minutes=minute), queued=minute)
    assert run("prune") == "0 rows deleted from default\n5 samples of the queue thinned in default\n"
    assert Depth.objects.get().queued == 4


# graph


def test_graph_as_mermaid_has_every_state_and_labels_by_kind():
    lines = run("graph", LABEL).splitlines()
    assert lines[0] == "stateDiagram-v2"
    for line in (
        "[*] --> new", "new --> limited", "outside --> done: timeout 3 d", "heir --> swept: failure",
        "asked --> done: condition", "done --> [*]",
    ):  # fmt: skip
        assert f"    {line}" in lines


def test_graph_with_counts():
    put(Errand)
    assert "    new: new (1)" in run("graph", LABEL, "--counts").splitlines()
    answer = asked("graph", LABEL, "--counts", "--format", "dot")
    assert {node["name"]: node["count"] for node in answer["states"]}["new"] == 1
    assert {edge["kind"] for edge in answer["edges"]} == {"handler", "timeout", "failure", "condition"}
    assert answer["text"].startswith('digraph "Errand" {')


def test_graph_as_dot():
    text = run("graph", LABEL, "--format", "dot")
    assert '    "outside" -> "done" [label="timeout 3 d", style=dashed];' in text
    assert text.count("{") == text.count("}") == 1


def test_graph_as_svg_has_every_state_and_edge():
    drawn = ElementTree.fromstring(run("graph", LABEL, "--format", "svg", "--counts"))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    states = Errand.state_graph.states
    assert {text.split(" (")[0] for text in texts} >= set(states)
    assert "timeout 3 d" in texts
    assert len(drawn.findall("{http://www.w3.org/2000/svg}path")) == len(
        {(edge.state.name, edge.other.name) for edge in Errand.state_graph.edges}
    )


def test_svg_of_hostile_names_stays_well_formed():
    node = {"name": "a", "label": "<b>&", "count": None, "initial": True, "terminal": True, "external": False}
    drawn = ElementTree.fromstring(graph.svg('<i>"', [node], []))
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["<b>&"]


def test_every_kind_of_edge_has_a_name():
    assert set(drawing.KINDS) == {"transitions_to", "times_out_to", "fails_to", "when"}


def test_every_subcommand_has_help(subprocess_environment):
    for name, module in SUBCOMMANDS.items():
        out = io.StringIO()
        with redirect_stderr(out), pytest.raises(SystemExit) as ended:
            call_command("stator", name, "--help", stdout=out)
        assert ended.value.code == 0
        assert module.HELP


def test_options_may_come_between_arguments():
    errand, other = put(Errand), put(Errand)
    assert run("move", LABEL, "--reason", "asked for", "done", errand.pk, other.pk) == "2 of 2 moved to done.\n"
    with pytest.raises(CommandError, match="unrecognized arguments: --reson"):
        run("retry", LABEL, "--reson", "asked for", errand.pk)
