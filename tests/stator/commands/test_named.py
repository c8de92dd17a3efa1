"""Answers about objects that are named by their keys: keys without an object, and keys given twice."""

import pytest

from tests.stator.commands.errands import LABEL, asked, held, run, state_of
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


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
