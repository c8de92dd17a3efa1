"""Handlers of many objects at once."""

import pytest

from stator import Fail, TryAgainLater
from stator.models import Report
from stator.worker import executor
from tests.stator.running import work
from tests.testapp.power import Crate, CrateGraph, Freight, FreightGraph, Written

pytestmark = pytest.mark.django_db(transaction=True)


def test_batch_handler_gets_up_to_so_many_objects_and_one_result_moves_all():
    CrateGraph.seen.clear()
    Crate.objects.bulk_create(Crate() for _ in range(10))
    summary = work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 10, "lost": 0}
    assert sorted(len(batch) for batch in CrateGraph.seen) == [2, 4, 4]
    assert summary.handled == {"testapp.crate": 10}


def test_batch_handler_answers_for_each_object_by_a_state_or_what_a_handler_might_raise(monkeypatch):
    answers = {
        "later": TryAgainLater(after=500, reason="closed"), "fail": Fail("never"), "torn": OSError("torn"),
        "lost": CrateGraph.lost, "sent": "sent",
    }  # fmt: skip
    monkeypatch.setattr(CrateGraph, "handle_sorting", lambda crates: {each: answers.get(each.deed) for each in crates})
    crates = [Crate.objects.create(deed=deed) for deed in (*answers, "rest")]
    work(Crate)
    for crate in crates:
        crate.refresh_from_db()
    later, *_ = crates
    assert [crate.state_failures for crate in crates] == [0, 1, 1, 0, 0, 0]
    assert [crate.state for crate in crates][2:] == ["sorting", "lost", "sent", "sorting"]
    assert 400 < (later.state_next_attempt - later.state_attempted).total_seconds() < 600
    assert sorted(Report.objects.values_list("message", flat=True))[::2] == ["closed", "torn"]


def test_answers_of_an_atomic_batch_undo_the_writes_for_the_objects_that_fail(monkeypatch):
    def load(crates):
        for each in crates:
            Written.objects.create(about=each.pk)
        return {each: OSError("torn") if each.weight < 0 else "gone" for each in crates}

    monkeypatch.setattr(FreightGraph, "handle_loaded", load)
    Freight.objects.bulk_create([Freight(state="loaded"), Freight(state="loaded"), Freight(state="loaded", weight=-1)])
    work(Freight)
    assert Freight.stator.counts() == {"loading": 0, "loaded": 1, "gone": 2}
    gone = set(Freight.objects.filter(state="gone").values_list("pk", flat=True))
    assert set(Written.objects.values_list("about", flat=True)) == gone


def test_one_bad_object_does_not_spoil_its_batch():
    good = [Crate.objects.create() for _ in range(3)]
    bad = Crate.objects.create(deed="raise")
    work(Crate)
    bad.refresh_from_db()
    assert (bad.state, bad.state_failures) == ("sorting", 1)
    assert Crate.objects.filter(pk__in=[parcel.pk for parcel in good], state="sent").count() == 3


def test_batch_handler_may_delete_objects_and_answer_for_the_others():
    CrateGraph.seen.clear()
    Crate.objects.bulk_create(Crate(deed=deed) for deed in ("delete", "", ""))
    summary = work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 2, "lost": 0}
    assert len(CrateGraph.seen) == 1
    assert (summary.failed, summary.lost) == (0, 0)


def test_batch_handler_may_answer_with_other_instances_of_its_objects(monkeypatch):
    monkeypatch.setattr(CrateGraph, "handle_sorting", lambda crates: dict.fromkeys(Crate.objects.all(), "sent"))
    Crate.objects.bulk_create(Crate() for _ in range(3))
    work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 3, "lost": 0}


def test_result_for_an_object_outside_the_batch_is_an_error():
    Crate.objects.create(deed="stranger")
    work(Crate)
    assert "1 objects that are not in its batch" in Report.objects.get().message


def test_asynchronous_and_atomic_batches_move_and_undo():
    Freight.objects.bulk_create([*(Freight() for _ in range(5)), Freight(weight=-1)])
    work(Freight)
    assert Freight.stator.counts() == {"loading": 0, "loaded": 1, "gone": 5}
    heavy = Freight.objects.get(weight=-1)
    assert (heavy.state_failures, heavy.state_claim) == (1, None)
    assert sorted(Written.objects.values_list("about", flat=True)) == sorted(
        Freight.objects.filter(state="gone").values_list("pk", flat=True)
    )


def test_objects_that_the_dictionary_leaves_out_are_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(executor, "_unanswered", set())
    caplog.set_level("INFO", logger="stator.worker")
    for _ in range(2):
        Crate.objects.create(deed="send")
        Crate.objects.create(deed="wait")
        work(Crate)
    [told] = [each for each in caplog.records if each.message == "stator.answers_missing"]
    assert (told.model, told.state, told.count) == ("testapp.crate", "sorting", 1)
