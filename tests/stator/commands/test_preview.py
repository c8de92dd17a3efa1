"""``manage.py stator preview``: what it tells of handlers of every kind, and that nothing remains of it."""

import asyncio
import threading

import pytest
from django.core.management import CommandError
from django.db import connection, transaction

from stator.exceptions import TryAgainLater
from stator.runner import StatorRunner
from tests import commanding
from tests.stator.commands.previewing import HELD, deed, everything, outcomes, run
from tests.stator.making import ago, change, locked_elsewhere, put, raw
from tests.testapp.basic import Author, Deed, DeedGraph, Page, PageGraph, Step
from tests.testapp.operators import Letter, LetterGraph, Parcel
from tests.testapp.power import Crate, CrateGraph, Customer, Measure, MeasureGraph, Order, Transfer, Written

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_what_handlers_would_do_is_told_by_kind_with_counts_and_examples(asked):
    parcels = [put(Parcel, orders=orders) for orders in ("", "", "wait", "later", "never", "by hand")]
    failing = [put(Parcel, orders="fail", address="no number\nat all") for _ in range(2)]
    stamped = put(Parcel, state="stamped")
    put(Parcel, state="sent")
    document = asked("testapp.Parcel")
    assert outcomes(document) == {
        ("packed", "moves", "stamped", "", ""): 2,
        ("packed", "stays", "packed", "", ""): 2,
        ("packed", "fails", "returned", "stator.exceptions.Fail", "no such street"): 1,
        ("packed", "moved by hand", "delivered", "", ""): 1,
        ("packed", "fails", "packed", "ValueError", "no number"): 2,
        ("stamped", "moves", "sent", "", ""): 1,
    }
    assert (document["model"], document["database"], document["attempted"]) == ("testapp.Parcel", "default", 9)
    examples = {each["to"]: each["examples"] for each in document["outcomes"] if each["what"] == "moves"}
    assert examples == {"stamped": [str(parcels[0].pk), str(parcels[1].pk)], "sent": [str(stamped.pk)]}
    assert not any((*document["left_alone"].values(), document["more"], document["without_handler"]))
    assert len(failing) == next(each["count"] for each in document["outcomes"] if each["error"] == "ValueError")


def test_people_get_a_table_and_a_warning(capsys):
    put(Parcel)
    put(Parcel, orders="fail", address="no number\x1b[31m")
    put(Parcel, **HELD)
    text = run("testapp.Parcel")
    assert text.startswith("2 of testapp.Parcel attempted; all changes were rolled back.\n")
    assert "packed stays: fails with ValueError: no number" in text
    assert "\x1b" not in text
    assert text.endswith("Left alone: 1 held by workers.\n")
    assert "are rolled back; mail, HTTP calls and other effects are not" in capsys.readouterr().err


def test_it_tells_what_a_worker_then_does(asked):
    for orders in ("", "", "wait", "fail", "never", "by hand"):
        put(Parcel, orders=orders)
    foretold = {each["to"]: 0 for each in asked("testapp.Parcel")["outcomes"]}
    for each in asked("testapp.Parcel")["outcomes"]:
        foretold[each["to"]] += each["count"]
    StatorRunner([Parcel]).run_single_cycle()
    assert foretold == {name: count for name, count in Parcel.stator.counts().items() if count}


# What handlers write


def test_what_a_handler_writes_is_undone_in_every_database_and_seen_by_itself(asked, monkeypatch):
    def write(row):
        Written.objects.create(about=row.pk)
        Written.objects.using("other").create(about=row.pk)
        row.deed = "changed"
        row.save()
        transaction.on_commit(lambda: committed.append(row.pk))
        with transaction.atomic(using="other"):
            Author.objects.using("other").create(name="somebody")
        with transaction.atomic(durable=True):
            seen.append((Written.objects.count(), raw(Deed).get(pk=row.pk).deed, row.stator.still_mine()))
        return "done"

    seen, committed = [], []
    for _ in range(2):
        deed(monkeypatch, write)
    assert outcomes(asked("testapp.Deed")) == {("called", "moves", "done", "", ""): 2}
    assert seen == [(1, "changed", True)] * 2
    assert not committed


def test_async_handlers_see_their_own_writes_and_leave_none(asked, monkeypatch):
    async def write(cls, letter):
        await Written.objects.acreate(about=1)
        seen.append((await Written.objects.acount(), await letter.stator.astill_mine()))
        await letter.asave()
        if letter.pk == "b":
            raise ValueError("no stamp")
        return cls.posted

    seen = []
    monkeypatch.setattr(LetterGraph, "handle_written", classmethod(write))
    put(Letter, number="a")
    put(Letter, number="b")
    assert outcomes(asked("testapp.Letter")) == {
        ("written", "moves", "posted", "", ""): 1,
        ("written", "fails", "written", "ValueError", "no stamp"): 1,
    }
    assert seen == [(1, True)] * 2


def test_atomic_states_are_rolled_back_whatever_their_handlers_do(asked):
    for what in ("", "raise", "stray", "wait"):
        put(Transfer, deed=what)
    found = asked("testapp.Transfer")["outcomes"]
    assert {(each["what"], each["to"], each["error"]) for each in found} == {
        ("moves", "done", ""),
        ("fails", "new", "ValueError"),
        ("fails", "new", "stator.exceptions.InvalidTransition"),
        ("stays", "new", ""),
    }


def test_batches_are_of_the_size_that_the_state_says(asked, monkeypatch):
    monkeypatch.setattr(CrateGraph, "seen", [])
    crates = [put(Crate, deed=what) for what in ("send", "lose", "error", "", "")]
    assert outcomes(asked("testapp.Crate")) == {
        ("sorting", "moves", "sent", "", ""): 2,
        ("sorting", "moves", "lost", "", ""): 1,
        ("sorting", "fails", "sorting", "OSError", "torn"): 1,
        ("sorting", "stays", "sorting", "", ""): 1,
    }
    assert [sorted(seen) for seen in CrateGraph.seen] == [[crate.pk for crate in crates[:4]], [crates[4].pk]]


def test_error_of_the_database_does_not_spoil_the_next(asked, monkeypatch):
    def twice(row):
        Page.objects.create(title="taken")

    put(Page, title="taken", state="published")
    first = deed(monkeypatch, twice)
    second = put(Deed, deed="other")
    monkeypatch.setitem(DeedGraph.deeds, "other", lambda row: "done")
    found = {tuple(each["examples"]): (each["what"], each["error"]) for each in asked("testapp.Deed")["outcomes"]}
    assert found == {(str(first.pk),): ("fails", "django.db.utils.IntegrityError"), (str(second.pk),): ("moves", "")}


def test_outcome_that_the_database_would_refuse_is_an_error(asked, monkeypatch):
    def null(cls, measure):
        measure.size = None if measure.deed else 1
        return cls.done

    monkeypatch.setattr(MeasureGraph, "handle_new", classmethod(null))
    put(Measure, deed="null")
    put(Measure)
    found = asked("testapp.Measure")["outcomes"]
    assert {(each["what"], each["to"], each["error"]) for each in found} == {
        ("fails", "new", "django.db.utils.IntegrityError"),
        ("moves", "done", ""),
    }


def test_reason_to_wait_and_a_deleted_object_are_told(asked, monkeypatch):
    def wait(row):
        raise TryAgainLater(5, "no van today")

    deed(monkeypatch, wait)
    assert outcomes(asked("testapp.Deed")) == {("called", "stays", "called", "", "no van today"): 1}
    monkeypatch.setitem(DeedGraph.deeds, "this", lambda row: Deed.objects.filter(pk=row.pk).delete() and None)
    assert outcomes(asked("testapp.Deed")) == {("called", "deleted", "", "", ""): 1}


def test_handler_that_closes_its_connection_ends_the_preview_with_one_line(monkeypatch):
    """Its transaction is gone with it, and with that all that could be told."""

    def close(row):
        Written.objects.create(about=row.pk)
        connection.close()
        return "done"

    deed(monkeypatch, close)
    with pytest.raises(CommandError, match=r"the database cannot be used: [^\n]+$") as refusal:
        run("testapp.Deed")
    assert refusal.value.returncode == 75
    assert not Written.objects.exists()
    assert Deed.stator.counts()["called"] == 1


# ``manage.py stator preview``: which objects it attempts, leaves alone and counts


def test_claimed_quarantined_and_unknown_objects_are_left_alone_and_counted(asked):
    put(Parcel)
    put(Parcel, **HELD)
    put(Parcel, state_crashes=3)
    change(put(Parcel), state="forgotten")
    document = asked("testapp.Parcel")
    assert document["attempted"] == 1
    assert document["left_alone"] == {"claimed": 1, "locked": 0, "quarantined": 1, "unknown": 1}
    assert asked("testapp.Parcel", "--all-waiting")["attempted"] == 1


@pytest.mark.postgresql  # SQLite has no locks of rows
def test_locked_objects_are_left_alone_and_counted(asked):
    put(Parcel)
    with locked_elsewhere(put(Parcel)):
        document = asked("testapp.Parcel")
    assert (document["attempted"], document["left_alone"]["locked"]) == (1, 1)


def test_objects_are_chosen_by_due_time_state_and_lookups(asked):
    put(Parcel, state_ready=False, state_next_attempt=ago(-600))
    put(Parcel, state_ready=False, state_next_attempt=ago(600), address="Main Street")
    put(Parcel, state="stamped")
    # Pausing, looking at the preview and resuming is one way to deploy.
    Parcel.stator.pause()
    assert asked("testapp.Parcel")["attempted"] == 2
    assert asked("testapp.Parcel", "--all-waiting")["attempted"] == 3
    assert [each["from"] for each in asked("testapp.Parcel", "--state", "stamped")["outcomes"]] == ["stamped"]
    assert asked("testapp.Parcel", "--where", "address__startswith=Main")["attempted"] == 1
    both = asked("testapp.Parcel", "--where", "orders=wait", "--where", "address=Main Street")
    assert both["attempted"] == 0


def test_limit_is_shared_by_the_states(asked):
    for _ in range(5):
        put(Parcel)
    for _ in range(2):
        put(Parcel, state="stamped")
    document = asked("testapp.Parcel", "--limit", 4)
    assert ({each["from"]: each["count"] for each in document["outcomes"]}, document["more"]) == (
        {"packed": 2, "stamped": 2},
        True,
    )
    assert not asked("testapp.Parcel", "--limit", 7)["more"]


def test_what_happens_without_a_handler_is_counted(asked):
    put(Order, amount=200)
    put(Order, customer=put(Customer, blocked=True))
    put(Order, amount=500, **HELD)
    document = asked("testapp.Order")
    assert document["without_handler"] == [
        {"from": "waiting", "what": "condition met", "to": "working", "count": 1},
        {"from": "waiting", "what": "condition met", "to": "shipped", "count": 1},
    ]
    assert document["attempted"] == 0


def test_timeouts_renames_and_deletions_are_counted(asked):
    change(put(Step), state="older")
    put(Step, state="outside", state_ready=False, state_changed=ago(8000))
    put(Step, state="done", state_ready=False, state_changed=ago(90_000))
    document = asked("testapp.Step")
    assert {(each["from"], each["what"], each["to"]) for each in document["without_handler"]} == {
        ("older", "renamed", "renewed"),
        ("outside", "times out", "failed"),
        ("done", "deleted", ""),
    }
    assert document["left_alone"]["unknown"] == 0


# ``manage.py stator preview``: handlers that take too long, and interruptions


def given_up(*arguments):
    """The JSON document of a preview that ended with exit code 2, since a handler took too long."""
    return commanding.asked("stator", "preview", *arguments, code=2)


def stuck(row):
    """Runs for a minute, and obeys nobody who ends it."""
    Written.objects.create(about=row.pk)
    try:
        threading.Event().wait(60)
    except BaseException:
        return "done"


def stuck_in_the_database(row):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


def test_what_was_found_until_a_handler_takes_too_long_is_told_and_what_was_not_tried(monkeypatch):
    monkeypatch.setitem(DeedGraph.deeds, "good", lambda row: "done")
    for _ in range(2):
        put(Deed, deed="good")
    row = deed(monkeypatch, stuck)
    put(Deed, deed="good")
    put(Deed, state="awaited", deed="good")
    before = everything()
    document = given_up("testapp.Deed", "--timeout", "0.2")
    assert outcomes(document) == {("called", "moves", "done", "", ""): 2}
    assert document["gave_up"]["objects"] == [str(row.pk)]
    assert document["not_tried"] == {"called": 1, "awaited": 1}
    assert document["left_alone"]["locked"] == 0
    assert everything() == before


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
