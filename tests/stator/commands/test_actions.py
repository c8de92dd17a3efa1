"""Subcommands that act on objects: move, retry, pause and resume, unlock, send, undo, and prune."""

import getpass

import pytest
from django.contrib.auth.models import User

from stator.models import Action, Event, History, Pause, Report
from tests.commanding import line_at_a_terminal
from tests.stator.commands.errands import LABEL, asked, held, refused, run, state_of, undo_line
from tests.stator.making import ago, change, put, raw, row
from tests.testapp.approvals import Expense
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_move_records_who_and_why():
    errand = put(Errand)
    assert run("move", LABEL, "done", errand.pk, "--reason", "asked for") == f"1 of 1 moved to done.\n{undo_line()}"
    assert state_of(errand) == "done"
    entry = History.objects.get()
    assert (entry.actor, entry.reason, entry.to) == (getpass.getuser(), "asked for", "done")


def test_move_of_a_state_takes_all_of_it_even_if_the_code_does_not_know_it():
    lost = [put(Errand) for _ in range(3)]
    for errand in lost:
        change(errand, state="mislaid")
    other = put(Errand)
    given = ("move", LABEL, "done", "--state", "mislaid", "--reason", "renamed")
    assert run(*given, "--limit", 2) == (f"2 of {LABEL} moved from mislaid to done.\n{undo_line()}")
    assert asked(*given)["moved"] == 1
    assert {state_of(errand) for errand in lost} == {"done"}
    assert state_of(other) == "new"
    assert "choose objects: either their keys, or --state OLD" in refused("move", LABEL, "done", "--reason", "r")


# ``stator retry``: by key, by state, by condition, with a limit, and of all


def test_retry_of_named_rows_records_the_user():
    errands = [put(Errand, state_ready=False, state_failures=3, state_next_attempt=ago(-600)) for _ in range(3)]
    named = asked("retry", LABEL, errands[0].pk, errands[1].pk)
    assert named.pop("action") == Action.objects.get().pk
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


# ``stator pause`` and ``stator resume``


def test_pause_and_resume():
    answer = asked("pause", LABEL, "--state", "new", "--where", "tenant=3", "--reason", "moving", "--for", "60")
    assert (answer["model"], answer["state"], answer["where"]) == ("testapp.errand", "new", {"tenant": 3})
    assert (answer["reason"], answer["actor"]) == ("moving", getpass.getuser())
    assert answer["until"]
    assert run("pause", LABEL).splitlines() == [
        "Paused testapp.errand until it is resumed.",
        f"To undo this within 1 h: manage.py stator undo {Action.objects.latest('pk').pk}",
    ]
    assert run("pause", LABEL, "--where", "name=abc").startswith("Paused testapp.errand {'name': 'abc'} until")
    assert asked("resume", LABEL, "--state", "new", "--where", "tenant=3") == {"model": LABEL, "resumed": 1}
    assert run("resume", LABEL) == "2 pauses of testapp.Errand ended.\n"


# ``stator resume``: pauses end, all of a model or those that are named


# ``stator unlock``: claims of named objects end, and what may still run is named


def test_unlock_ends_claims_of_named_rows():
    errand, other = put(Errand, **held()), put(Errand, **held())
    unlocked = asked("unlock", LABEL, errand.pk)
    assert unlocked.pop("may_run")[0].startswith(f"{errand.pk}: attempt 0, which began")
    assert unlocked.pop("action") == Action.objects.get().pk
    assert unlocked == {"model": LABEL, "named": 1, "missing": [], "unlocked": 1}
    assert set(Errand.stator.leased()) == {other}
    assert run("unlock", LABEL, errand.pk) == "0 of 1 unlocked: it is not claimed.\n"
    told = run("unlock", LABEL, errand.pk, other.pk)
    assert told.startswith(f"1 of 2 unlocked: the other is not claimed.\nIt may still run: {other.pk}: attempt 0"), told


def test_unlock_tells_what_may_still_run_and_pauses_if_asked():
    errand = put(Errand, **held())
    told = run("unlock", LABEL, errand.pk, "--pause", "--reason", "runs wild")
    assert "1 of 1 unlocked and paused." in told
    assert f"It may still run: {errand.pk}: attempt" in told
    assert Pause.objects.active().get().where == {"pk__in": [errand.pk]}
    assert not Errand.stator.ready().exists()


# ``stator send``: an event is sent to an object, and a refusal is one line


EXPENSES = "testapp.Expense"


def test_send_moves_an_object_under_the_name_of_the_user_of_the_system():
    expense = put(Expense)
    told = run("send", EXPENSES, expense.pk, "reject", "--payload", '{"why": "twice"}')
    assert told == f"reject to {EXPENSES} {expense.pk}: moved.\n"
    assert row(expense).state == "rejected"
    event = Event.objects.get()
    assert (event.sender, event.payload) == (getpass.getuser(), {"why": "twice"})


def test_send_counts_users_and_says_how_many_are_missing():
    anna = User.objects.create_superuser("anna")
    expense = put(Expense)
    given = (
        "send",
        EXPENSES,
        expense.pk,
        "approve",
        "--payload",
        '{"note": "ok"}',
        "--key",
        "k1",
        "--by",
        anna.username,
    )
    assert asked(*given) == {
        "model": EXPENSES, "pk": str(expense.pk), "event": "approve", "outcome": "counted", "missing": 1, "note": "",
    }  # fmt: skip
    assert run(*given).endswith("sent before, with this key; nothing changed.\n")


def test_send_takes_the_name_of_a_program_and_says_that_it_is_no_user():
    expense = put(Expense)
    told = run("send", EXPENSES, expense.pk, "reject", "--by", "accounting")
    assert (
        told
        == f"reject to {EXPENSES} {expense.pk}: moved; sent as the program accounting, for no user has that name.\n"
    )
    assert (row(expense).state, Event.objects.get().sender) == ("rejected", "accounting")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("aprove",), "ExpenseGraph has no event 'aprove'; its events: approve, reject, hurry, cancel, receipt"),
        (("approve", "--by", "nobody"), "--by 'nobody': there is no such user; give the username of one"),
        (("reject", "--payload", "{"), "--payload '{' is not JSON: Expecting property name enclosed in double quotes"),
        (("approve",), "'approve' needs a user with the permission testapp.change_expense; pass by=USER"),
    ],
)
def test_refusals_are_one_line(given, told):
    expense = put(Expense)
    assert told in refused("send", EXPENSES, expense.pk, *given)
    assert row(expense).state == "submitted"


# Answers about objects that are named by their keys: keys without an object, and keys given twice


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
    assert answer.pop("action")
    assert answer == {"model": LABEL, "state": "done", "named": 3, "missing": [str(gone), str(gone + 1)], "moved": 1}
    assert state_of(errand) == "done"
    keys = range(gone, gone + 22)
    told = f"0 of 22 moved to done: no object has key {', '.join(map(str, keys[:20]))} or 2 others.\n"
    assert run(*move, *keys, code=1) == told


def test_key_that_is_given_twice_counts_once():
    errand = put(Errand)
    assert run("move", LABEL, "done", errand.pk, errand.pk, "--reason", "r").startswith("1 of 1 moved to done.\n")


# ``stator undo``: what it undoes, what it names, and the list of what can be undone


def test_wrong_move_is_undone_with_author_and_reason():
    errands = [put(Errand) for _ in range(3)]
    moved = asked("move", LABEL, "done", *[errand.pk for errand in errands], "--reason", "sent")
    gone = errands[1].pk
    errands[1].delete()
    errands[2].transition_perform("heir")
    told = run("undo", moved["action"], "--reason", "not sent")
    first, *left, last = told.splitlines()
    assert (first, last) == ("1 of 3 objects went back.", undo_line().strip())
    assert sorted(left) == sorted([f"Left alone: {gone} is gone", f"Left alone: {errands[2].pk} is in heir now"])
    assert [state_of(errand) for errand in (errands[0], errands[2])] == ["new", "heir"]
    entry = History.objects.latest("pk")
    assert (entry.actor, entry.reason) == (getpass.getuser(), f"undid action {moved['action']}: not sent")


def test_json_has_every_object_that_was_left():
    errands = [put(Errand) for _ in range(25)]
    moved = asked("move", LABEL, "done", "--state", "new", "--reason", "sent")
    for errand in errands[1:]:
        errand.transition_perform("heir")
    assert "Left alone: 4 more; --json names them" in run("undo", moved["action"])
    answer = asked("undo", moved["action"], code=1)
    assert (answer["undone"], answer["count"], answer["left"]) == (moved["action"], 0, 24)
    assert answer["named"] == {str(errand.pk): "is in heir now" for errand in errands[1:]}


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
    assert lines[0].split() == ["action", "what", "objects", "model", "who", "when", "why"]
    assert [line.split()[1] for line in lines[1:4]] == ["undo", "unlock", "pause"]
    assert "pause (undone)" in lines[3]


def test_action_that_is_unknown_or_no_number_is_refused_in_one_line(capsys):
    assert refused("undo", 4711) == "there is no action 4711; stator undo without a number lists those of the last hour"
    assert "invalid int value: 'last'" in line_at_a_terminal(capsys, "stator", "undo", "last")
    assert not Action.objects.exists()


# ``stator prune``: old rows are deleted, and samples of the queue are thinned


def test_prune_deletes_what_is_old_enough():
    report = Report.objects.create(model_label="testapp.errand", object_pk="1", state="new")
    raw(Report).filter(pk=report.pk).update(at=ago(400 * 86400))
    Report.objects.create(model_label="testapp.errand", object_pk="2", state="new")
    none = {"default": 0}
    assert asked("prune") == {"deleted": {"default": 1}, "partitions": none, "thinned": none, "merged": none}
    assert run("prune") == "0 rows deleted from default\n"
