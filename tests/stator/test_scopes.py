"""Scopes: a site without paths and slices pays nothing for them."""

import re
import sys

import pytest
from django.db import connections

from stator.graph.outcomes import Moved
from stator.scopes import UNCHANGED, Scope, entered, path_in_use
from tests.stator.making import operations_of
from tests.testapp.models import Line


def called(act):
    found = set()

    def note(frame, event, arg):
        if event == "call":
            found.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def test_scope_without_a_path_changes_nothing():
    scope = Scope("default")
    assert scope.enter() is UNCHANGED
    assert scope.fields() == {"database": "default"}
    assert entered() == ""


def test_row_asks_neither_schemas_nor_slices(db, monkeypatch):
    """From its INSERT to its record, by a worker that has made its store, where no schema was ever entered."""
    # A test of schemas that ran before in this process has left its cursor on the connection.
    monkeypatch.delitem(vars(connections["default"]), "_cursor", raising=False)
    operations = operations_of(Line)
    [state] = {state for state in operations.automatic if state.initial}

    def pass_through():
        Line.objects.create()
        [claim] = operations.claim([state], 1)
        written = operations.record([(claim, Moved(min(state.children, key=str)))])
        assert len(written.moves) == 1

    pass_through()
    modules = called(pass_through)
    assert "stator.db.claims" in modules
    assert not [name for name in modules if re.match(r"stator\.extensions\.(schemas|slices)\b", name)]


@pytest.mark.needs("schemas")
def test_path_is_what_was_entered(settings):
    with Scope("default", "acme").enter():
        assert entered() == "acme"
        assert path_in_use(None) == "acme"
    assert entered() == ""
