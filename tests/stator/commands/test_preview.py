"""``manage.py stator preview``: what it tells of handlers of every kind, and that nothing remains of it."""

import pytest
from django.core.management import CommandError
from django.db import connection, transaction

from stator.exceptions import TryAgainLater
from stator.models import History, Report
from stator.runner import StatorRunner
from tests.stator.commands.previewing import HELD, deed, outcomes, refused, run
from tests.stator.making import put, raw
from tests.testapp.basic import Author, Deed, DeedGraph, Page
from tests.testapp.operators import Letter, LetterGraph, Parcel
from tests.testapp.power import Crate, CrateGraph, Measure, MeasureGraph, Transfer, Written

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


def test_reason_to_wait_is_told(asked, monkeypatch):
    def wait(row):
        raise TryAgainLater(5, "no van today")

    deed(monkeypatch, wait)
    assert outcomes(asked("testapp.Deed")) == {("called", "stays", "called", "", "no van today"): 1}


def test_people_get_a_table_and_a_warning(capsys):
    put(Parcel)
    put(Parcel, orders="fail", address="no number\x1b[31m")
    put(Parcel, **HELD)
    lines = run("testapp.Parcel").splitlines()
    assert lines[0] == "2 of testapp.Parcel attempted; all changes were rolled back."
    assert lines[2].split("  ") == ["objects", "what would happen", *lines[2].split("  ")[2:]]
    assert any(line.startswith("1        packed -> stamped ") for line in lines)
    assert any("packed stays: fails with ValueError: no number" in line and "\x1b" not in line for line in lines)
    assert lines[-1] == "Left alone: 1 held by workers."
    error = capsys.readouterr().err
    assert "are rolled back; mail, HTTP calls and other effects are not" in error
    assert error.count("\n") == 1


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


def test_handler_that_deletes_its_object(asked, monkeypatch):
    deed(monkeypatch, lambda row: Deed.objects.filter(pk=row.pk).delete() and None)
    assert outcomes(asked("testapp.Deed")) == {("called", "deleted", "", "", ""): 1}


# Bad input, and the terminal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["auth.User"], "is not managed by Stator"),
        (["testapp.Parcel", "--state", "nowhere"], "'nowhere' is not a state of ParcelGraph"),
        (["testapp.Parcel", "--limit", "9999999"], "--limit 9999999 must be from 1"),
        (["testapp.Parcel", "--timeout", "0"], "--timeout 0.0 must be above 0"),
        (["testapp.Parcel", "--where", "address__regex=("], "patterns are not allowed"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message):
    put(Parcel)
    assert message in refused(*arguments)
    assert not Report.objects.exists()
    assert not History.objects.exists()


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
