"""``stator undo``: what it undoes, what it names, and the list of what can be undone."""

import getpass

import pytest

from stator.models import Action, History, Pause
from tests.commanding import line_at_a_terminal
from tests.stator.commands.errands import LABEL, asked, held, refused, run, state_of, undo_line
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_wrong_move_is_undone_with_author_and_reason():
    errands = [put(Errand) for _ in range(3)]
    moved = asked("move", LABEL, "done", *[errand.pk for errand in errands], "--reason", "sent")
    gone = errands[1].pk
    errands[1].delete()
    errands[2].transition_perform("heir")
    told = run("undo", moved["action"], "--reason", "not sent")
    assert told.splitlines() == [
        "1 of 3 objects went back.",
        f"Left alone: {gone} is gone",
        f"Left alone: {errands[2].pk} is in heir now",
        undo_line().strip(),
    ]
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
