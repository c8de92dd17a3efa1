"""An object that hangs its workers: released, it takes none of them down again, and people learn where it hangs."""

import pytest

from stator.models import Report
from stator.rows.actions import Action
from stator.rows.claimable import Crashes
from stator.rows.due_times import retry_spread
from tests.operating.tools import shell
from tests.processes import WorkerProcess, wait_until
from tests.stator.making import ago, automatic, change, expire, operations_of, put, raw, row
from tests.testapp.faults import Bomb
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)


def retried(parcel):
    return Parcel.stator.filter(pk=parcel.pk).retry()


def retried_at_a_rate(parcel):
    count = retry_spread(
        raw(Parcel).all(), [[parcel.pk]], per_minute=6000, most=9, action=Action.of(Parcel, "retry", "anna")
    )
    change(parcel, state_ready=True, state_next_attempt=None)
    return count


@pytest.mark.parametrize("release", [retried, retried_at_a_rate])
def test_released_object_is_attempted_alone_until_an_attempt_ends(release):
    parcel, failing = put(Parcel, state_ready=False, state_crashes=3), put(Parcel, state_failures=2, state_crashes=1)
    operations = operations_of(Parcel)
    assert release(parcel) == 1
    assert release(failing) == 1
    assert (row(failing).state_crashes, row(failing).state_failures) == (0, 0)
    claims = operations.claim(automatic(operations), 10)
    assert [claim.pk for claim in claims] == [failing.pk]
    assert operations.claim(automatic(operations), 10, crashes=Crashes.FEW) == []
    [claim] = operations.claim(automatic(operations), 10, crashes=Crashes.MANY)
    assert claim.pk == parcel.pk


def test_with_one_crash_for_quarantine_a_release_still_releases():
    parcel = put(Parcel, state_ready=False, state_crashes=1)
    assert operations_of(Parcel, MAX_CRASHES=1).settings.released_with == 0
    assert operations_of(Parcel, MAX_CRASHES=2).settings.released_with == 1
    assert retried(parcel) == 1


def test_worker_that_ends_itself_says_where_its_attempt_hung():
    bomb = Bomb.objects.create(kind="sleep on loop")
    with WorkerProcess("testapp.Bomb", STATOR_WATCHDOG="1", STATOR_LEASE="60") as worker:
        assert worker.wait() == 70, worker.output()
    report = Report.objects.get(object_pk=str(bomb.pk))
    assert report.error == "stator.Hung"
    assert "the event loop was blocked for" in report.message
    assert "faults.py" in report.message
    assert "handle_on_loop" in report.traceback
    # Its lease runs out for the third time.
    change(bomb, state_crashes=2)
    expire(bomb)
    operations_of(Bomb).reap(10)
    quarantined = Report.objects.get(object_pk=str(bomb.pk))
    assert quarantined.error == "stator.Quarantined"
    assert quarantined.traceback == report.traceback
    [reason, *_] = row(bomb).explain()
    assert reason.code == "quarantined"
    assert "the attempt hung at" in reason.sentence
    assert "faults.py" in shell("stator", "status", "testapp.Bomb")
    Bomb.stator.filter(pk=bomb.pk).retry(actor="anna")
    assert "retried" in next(one.sentence for one in row(bomb).explain() if one.code == "crashed")
    change(bomb, state_crashes=3, state_ready=False, state_changed=ago(9))
    assert "The retry by anna" in row(bomb).explain()[0].sentence


def test_handler_that_holds_the_interpreter_is_told_with_its_place():
    # It has lost its workers before, so it is attempted in a process of its own.
    bomb = put(Bomb, kind="regex", state="fresh", state_crashes=2)
    with WorkerProcess("testapp.Bomb", STATOR_WATCHDOG="1", STATOR_LEASE="60") as worker:
        wait_until(lambda: Report.objects.filter(object_pk=str(bomb.pk)), message=worker.output)
        wait_until(lambda: "stator.isolated_process_died" in worker.output(), message=worker.output)
        # It is dumped as before.
        assert "(most recent call first)" in worker.output()
        # The worker goes on.
        other = put(Bomb, kind="harmless")
        wait_until(lambda: row(other).state == "done", message=worker.output)
    report = Report.objects.get(object_pk=str(bomb.pk))
    assert report.error == "stator.Hung"
    assert "held the interpreter" in report.message
    assert "the attempt hung at" in report.message
    assert "handle_fresh" in report.traceback
    assert "executor.py" not in report.traceback
    expire(bomb)
    operations_of(Bomb).reap(10)
    [reason, *_] = row(bomb).explain()
    assert reason.code == "quarantined"
    assert "the attempt hung at" in reason.sentence
