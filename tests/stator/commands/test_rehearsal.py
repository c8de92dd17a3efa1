"""``manage.py stator preview``: handlers that take too long, and interruptions."""

import asyncio
import threading

import pytest
from django.core.management import call_command
from django.db import connection

from tests import commanding
from tests.stator.commands.previewing import deed, everything, outcomes, run
from tests.stator.making import put
from tests.testapp.basic import Deed, DeedGraph, Page, PageGraph
from tests.testapp.power import Written

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def given_up(*arguments):
    """The JSON document of a preview that ended with exit code 2, since a handler took too long."""
    return commanding.asked("stator", "preview", *arguments, code=2)


def stuck(row):
    Written.objects.create(about=row.pk)
    threading.Event().wait(60)


def stuck_in_the_database(row):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


def stuck_for_good(row):
    try:
        stuck(row)
    except BaseException:
        return "done"


@pytest.mark.parametrize("function", [stuck, stuck_for_good])
def test_handler_that_takes_too_long_ends_the_preview(monkeypatch, function):
    row = deed(monkeypatch, function)
    before = everything()
    document = given_up("testapp.Deed", "--timeout", "0.2")
    assert document["gave_up"] == {"state": "called", "objects": [str(row.pk)], "seconds": 0.2}
    assert (document["attempted"], document["not_tried"], document["left_alone"]["locked"]) == (0, {}, 0)
    assert everything() == before
    assert not connection.in_atomic_block


def test_what_was_found_until_a_handler_takes_too_long_is_told_and_what_was_not_tried(monkeypatch, capsys):
    monkeypatch.setitem(DeedGraph.deeds, "good", lambda row: "done")
    for _ in range(2):
        put(Deed, deed="good")
    row = deed(monkeypatch, stuck)
    put(Deed, deed="good")
    put(Deed, state="awaited", deed="good")
    document = given_up("testapp.Deed", "--timeout", "0.2")
    assert outcomes(document) == {("called", "moves", "done", "", ""): 2}
    assert document["gave_up"]["objects"] == [str(row.pk)]
    assert document["not_tried"] == {"called": 1, "awaited": 1}
    assert document["left_alone"]["locked"] == 0
    with pytest.raises(SystemExit):
        call_command("stator", "preview", "testapp.Deed", "--timeout", "0.2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of testapp.Deed attempted; all changes were rolled back."
    assert lines[-2] == f"The handler of called ran longer than 0.2 s on {row.pk} and was ended."
    assert lines[-1].startswith("Not tried: 1 in called, 1 in awaited. Raise --timeout")


@pytest.mark.postgresql
def test_statement_that_takes_too_long_is_cancelled(monkeypatch):
    deed(monkeypatch, stuck_in_the_database)
    assert given_up("testapp.Deed", "--timeout", "0.2")["gave_up"]
    assert Deed.objects.count() == 1


def test_async_handler_that_takes_too_long(monkeypatch):
    async def hang(cls, page):
        await Written.objects.acreate(about=page.pk)
        await asyncio.Event().wait()

    monkeypatch.setattr(PageGraph, "handle_draft", classmethod(hang))
    put(Page, title="p")
    before = everything()
    assert given_up("testapp.Page", "--timeout", "0.2")["gave_up"]["state"] == "draft"
    assert everything() == before


def test_interruption_by_hand_goes_through_and_leaves_nothing(monkeypatch):
    def interrupted(row):
        Written.objects.create(about=row.pk)
        raise KeyboardInterrupt

    deed(monkeypatch, interrupted)
    before = everything()
    with pytest.raises(KeyboardInterrupt):
        run("testapp.Deed")
    assert everything() == before
