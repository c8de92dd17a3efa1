"""Subcommands that change objects: one table of what each is given, says and does, and what some of them do further."""

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User

from stator.commands import subcommands
from stator.models import Action, History, Pause, Report
from tests.stator.commands.errands import LABEL, asked, held, run, state_of, undo_line
from tests.stator.making import ago, change, put, raw, row
from tests.testapp.approvals import Expense
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)

EXPENSES = "testapp.Expense"
FAILING = {"state_ready": False, "state_failures": 3, "state_next_attempt": ago(-86400)}


def latest(model: Any, *names: str) -> Any:
    return model.objects.order_by("-pk").values_list(*names)[0]


@dataclass(frozen=True)
class Verb:
    """A subcommand, the arguments with which it acts on one object, and what is so afterwards.

    ``columns``: those of the object. ``before``: what somebody has done to it. In arguments and texts, ``{pk}`` is its
    key and ``{action}`` the number of the latest action. ``kept``: where the user and the reason are stored.
    """

    given: str
    said: str
    became: Callable[[Any], bool]
    kept: Any
    reason: str
    columns: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Any], object] = lambda errand: None
    model: Any = Errand


def is_paused(errand: Any) -> bool:
    return bool(errand.explain()[0].code == "paused")


def moved_by_mistake(errand: Any) -> None:
    Errand.stator.filter(pk=errand.pk).move("done", actor="bob")


OF_PAUSES = {
    "pause": Verb(
        f"{LABEL} --state new --where tenant=0 --reason moving --for 60", "Paused testapp.errand", is_paused, Pause,
        "moving",
    ),
    "resume": Verb(
        f"{LABEL} --state new", "1 pause of testapp.Errand ended.", lambda one: not is_paused(one),
        None, "", before=lambda errand: Errand.stator.pause("new"),
    ),
}  # fmt: skip
OF_EVENTS = {
    "send": Verb(
        f"{EXPENSES} {{pk}} reject --reason twice", f"reject to {EXPENSES} {{pk}}: moved.",
        lambda one: one.state == "rejected", History, "reject: twice", model=Expense,
    ),
}  # fmt: skip
OF_UNDO = {
    "undo": Verb(
        "{action} --reason mistake", "1 of 1 object went back.", lambda one: one.state == "new", History,
        "undid action {action}: mistake", before=moved_by_mistake,
    ),
}  # fmt: skip
VERBS = {
    "move": Verb(
        f"{LABEL} done {{pk}} --reason sold", "1 of 1 moved to done.", lambda one: one.state == "done", History, "sold"
    ),
    "retry": Verb(
        f"{LABEL} {{pk}}", "1 of 1 made due.", lambda one: one.state_ready and not one.state_failures, History,
        "retried", FAILING,
    ),
    "unlock": Verb(
        f"{LABEL} {{pk}}", "1 of 1 unlocked.", lambda one: one.state_claim is None, History, "unlocked", held(86400)
    ),
    **OF_UNDO,  # stator.extensions.undo
    **OF_PAUSES,  # stator.extensions.pauses
    **OF_EVENTS,  # stator.extensions.events
}  # fmt: skip
NOT_UNDONE = {"resume", "send"}
# They show something, or change no objects; each has tests of its own.
OTHERS = {
    "preview", "prune", "statements",
    "errors",  # stator.extensions.reports
    "workers",  # stator.extensions.fleet
    "doctor", "explain", "status",  # stator.extensions.problems
    "graph",  # stator.extensions.pictures
    "adopt",  # stator.extensions.adopt
    "shadow",  # stator.extensions.shadow
}  # fmt: skip


def test_each_subcommand_is_here():
    assert {*VERBS} | OTHERS == {*subcommands()}


@pytest.mark.parametrize("name", VERBS)
def test_subcommand_acts_once_in_the_name_of_the_user_and_says_so(name):
    verb = VERBS[name]
    for call in (run, asked):
        errand = put(verb.model, **verb.columns)
        verb.before(errand)
        before = Action.objects.order_by("-pk").first()
        keys = {"pk": errand.pk, "action": before and before.pk}
        told = call(name, *verb.given.format(**keys).split())
        assert verb.became(row(errand)), told
        if verb.kept:
            assert latest(verb.kept, "actor", "reason") == (getpass.getuser(), verb.reason.format(**keys))
        if call is run:
            assert told.startswith(verb.said.replace("{pk}", str(errand.pk))), told
            assert name in NOT_UNDONE or told.endswith(undo_line())
        Errand.stator.resume()  # stator.extensions.pauses


def test_move_of_a_state_takes_all_of_it_even_if_the_code_does_not_know_it():
    lost = [put(Errand) for _ in range(3)]
    for errand in lost:
        change(errand, state="mislaid")
    other = put(Errand)
    given = ("move", LABEL, "done", "--state", "mislaid", "--reason", "renamed")
    assert run(*given, "--limit", 2) == (f"2 of {LABEL} moved from mislaid to done.\n{undo_line()}")
    assert asked(*given)["moved"] == 1
    assert ({state_of(errand) for errand in lost}, state_of(other)) == ({"done"}, "new")


@pytest.mark.needs("problems")
def test_retry_by_state_condition_limit_and_of_all():
    for number in range(3):
        put(Errand, state_ready=False, state_crashes=number + 1, state_failures=number)
    put(Errand, state="heir", state_ready=False)
    put(Errand, state="done")
    told = run("retry", LABEL, "--quarantined")
    assert told.startswith("1 of testapp.Errand is due now.\nIt is not attempted yet: No live worker serves"), told
    assert asked("retry", LABEL, "--failed")["retried"] == 1
    assert asked("retry", LABEL, "--state", "heir")["retried"] == 1
    assert asked("retry", LABEL, "--state", "new", "--limit", "2")["retried"] == 2
    assert asked("retry", LABEL, "--yes")["retried"] == 4


@pytest.mark.needs("pauses")
def test_resume_ends_the_pauses_that_are_named():
    assert run("pause", LABEL).startswith("Paused testapp.errand until it is resumed.\n")
    asked("pause", LABEL, "--where", "tenant=3", "--where", "name=abc")
    given = ("resume", LABEL, "--where", "tenant=3", "--where", "name=abc")
    assert [asked(*given)["resumed"] for _ in range(2)] == [1, 0]
    assert Pause.objects.active().get().where == {}


@pytest.mark.needs("pauses")
def test_unlock_tells_what_may_still_run_and_pauses_if_asked():
    errand, other = put(Errand, **held()), put(Errand, **held())
    told = run("unlock", LABEL, errand.pk, "--pause", "--reason", "runs wild")
    assert "1 of 1 unlocked and paused." in told
    assert f"It may still run: {errand.pk}: attempt" in told
    assert Pause.objects.active().get().where == {"pk__in": [errand.pk]}
    assert not Errand.stator.ready().exists()
    told = run("unlock", LABEL, errand.pk, other.pk)
    assert told.startswith(f"1 of 2 unlocked: the other is not claimed.\nIt may still run: {other.pk}: attempt 0"), told


@pytest.mark.needs("events")
def test_send_counts_users_and_says_how_many_are_missing():
    User.objects.create_superuser("anna")
    expense = put(Expense)
    given = ("send", EXPENSES, expense.pk, "approve", "--payload", '{"note": "ok"}', "--key", "k1", "--by", "anna")
    answer = asked(*given)
    assert (answer["outcome"], answer["missing"]) == ("counted", 1)
    assert run(*given).endswith("sent before, with this key; nothing changed.\n")
    told = run("send", EXPENSES, expense.pk, "reject", "--by", "accounting")
    assert told.endswith(": moved; sent as the program accounting, for no user has that name.\n")


def test_keys_that_no_object_has_are_named_with_exit_code_1_and_keys_given_twice_count_once():
    errand, gone = put(Errand, **held()), 10**6
    nobody = f"no object has key {gone}"
    assert run("unlock", LABEL, gone, code=1) == f"0 of 1 unlocked: {nobody}.\n"
    assert run("retry", LABEL, gone, errand.pk, code=1) == (
        f"0 of 2 made due: {nobody}; the other is held, or in a state that workers do not attempt.\n"
    )
    move = ("move", "--reason", "asked for", LABEL, "done", errand.pk, errand.pk, gone, gone + 1)
    answer = asked(*move, code=1)
    assert (answer["named"], answer["missing"], answer["moved"]) == (3, [str(gone), str(gone + 1)], 1)


@pytest.mark.needs("undo")
def test_undo_names_what_it_leaves_alone():
    errands = [put(Errand) for _ in range(22)]
    moved = asked("move", LABEL, "done", "--state", "new", "--reason", "sent")
    for errand in errands[1:]:
        errand.transition_perform("heir")
    told = run("undo", moved["action"])
    assert told.startswith("1 of 22 objects went back.")
    assert f"Left alone: {errands[1].pk} is in heir now\n" in told
    assert "Left alone: 1 more; --json names them" in told
    answer = asked("undo", moved["action"], code=1)
    assert (answer["undone"], answer["count"], answer["left"]) == (moved["action"], 0, 21)


@pytest.mark.needs("pauses", "undo")
def test_actions_of_the_last_hour_are_listed_and_say_whether_they_are_undone():
    assert run("undo") == "Nobody has changed objects by hand in the last 1 h.\n"
    put(Errand, **held())
    run("pause", LABEL, "--reason", "maintenance")
    run("unlock", LABEL, Errand.stator.get().pk)
    [unlock, pause] = asked("undo")
    assert (unlock["kind"], unlock["count"], unlock["undone"]) == ("unlock", 1, False)
    assert (pause["kind"], pause["reason"], pause["model"]) == ("pause", "maintenance", "testapp.errand")
    run("undo", pause["action"])
    assert not Pause.objects.active().exists()
    lines = run("undo").splitlines()
    assert [line.split()[1] for line in lines[1:4]] == ["undo", "unlock", "pause"]
    assert "pause (undone)" in lines[3]


def test_prune_deletes_what_is_old_enough():
    report = Report.objects.create(model_label="testapp.errand", object_pk="1", state="new")
    raw(Report).filter(pk=report.pk).update(at=ago(400 * 86400))
    Report.objects.create(model_label="testapp.errand", object_pk="2", state="new")
    none = {"default": 0}
    assert asked("prune") == {"deleted": {"default": 1}, "partitions": none, "thinned": none, "merged": none}
    assert run("prune") == "0 rows deleted from default\n"
