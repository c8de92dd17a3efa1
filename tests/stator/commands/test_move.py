"""``stator move``: objects are moved by hand, with a reason."""

import getpass

import pytest

from stator.models import History
from tests.stator.commands.errands import LABEL, asked, refused, run, state_of, undo_line
from tests.stator.making import change, put
from tests.testapp.explained import Errand, ErrandGraph

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


def test_move_to_a_state_that_only_the_framework_enters_is_refused(monkeypatch):
    monkeypatch.setattr(ErrandGraph.done, "enter_by_hand", False)
    errand = put(Errand)
    told = refused("move", LABEL, "done", errand.pk, "--reason", "asked for")
    assert told.startswith(
        "ErrandGraph.done can be entered only by the framework, not by hand; you can move objects to new,"
    )
    assert state_of(errand) == "new"
