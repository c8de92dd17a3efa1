"""Signals of a worker: when each is sent, and with which values."""

import logging

import pytest
from django.db import transaction

from stator import signals
from stator.db.interface import Written
from stator.exceptions import Fail
from stator.graph.failures import describe
from stator.models import Stats
from stator.signals import Move, claim_ended, lease_lost, on_schedule, on_start, transitioned
from stator.testing import drain
from stator.worker.announcements import send_moves, tell
from tests.stator.making import ago, put, raw, row
from tests.stator.running import connected, hearing, work
from tests.stator.worker.fakes import FakeOperations
from tests.testapp.basic import Deed, Step
from tests.testapp.models import Line
from tests.testapp.operators import Parcel


@pytest.mark.usefixtures("transactional_db")
class TestSignals:
    def test_worker_tells_of_its_start_and_of_each_scheduling_pass(self):
        with hearing(on_start) as started, hearing(on_schedule) as scheduled:
            work(Line)
        assert len(started) == 1
        assert started[0][0].settings.LEASE == 60
        assert [values for _, values in scheduled] == [{"databases": ["default"]}]

    def test_signals_of_moves_come_after_their_commit(self):
        line, seen = put(Line), []

        def look(sender, moves, using, instances, **kwargs):
            assert instances == {line.pk: line}
            seen.extend((sender, move.pk, move.source, move.to, using, row(line).state_version) for move in moves)

        put(Step, state="outside", state_changed=ago(7201))
        with connected(transitioned, look, sender=Line), hearing(transitioned, Step) as heard:
            work(Line, Step)
        # So are those of timeouts.
        assert [(move.source, move.to) for _, told in heard for move in told["moves"]] == [("outside", "failed")]
        assert [told[:5] for told in seen] == [
            (Line, line.pk, "first", "second", "default"),
            (Line, line.pk, "second", "last", "default"),
        ]
        assert seen[0][5] >= 1
        assert seen[1][5] == 2

    @pytest.mark.parametrize(("late", "signal", "other"), [(0, claim_ended, lease_lost), (60, lease_lost, claim_ended)])
    def test_claims_that_ended_during_an_attempt_are_told_by_signals_and_in_the_log(
        self, deeds, caplog, late, signal, other
    ):
        def lose(instance):
            raw(Deed).filter(pk=instance.pk).update(state_claim=None, state_ready=False, state_next_attempt=ago(-60))
            instance.stator.deadline -= late
            return "done"

        caplog.set_level(logging.INFO, "stator")
        deeds["lose"] = lose
        deed = Deed.objects.create(deed="lose")
        with hearing(signal) as heard, hearing(other) as not_heard:
            assert work(Deed).lost == (1 if late else 0)
        assert heard == [(Deed, {"pks": [deed.pk], "using": "default"})]
        assert not_heard == []
        [line] = [line for line in caplog.records if line.message in ("stator.lease_lost", "stator.claim_ended")]
        assert (line.message, line.levelname) == (
            ("stator.lease_lost", "WARNING") if late else ("stator.claim_ended", "INFO")
        )
        assert (line.model, line.pk, line.state) == ("testapp.deed", str(deed.pk), "called")

    def test_statistics_of_a_worker_are_complete(self):
        Line.objects.bulk_create(Line() for _ in range(20))
        work(Line)
        assert Stats.get_for_model(Line).most_recent_handled() == (40, 40, 40)


class TestWhatATestCounts:
    """The functions of ``on_commit`` in the transaction of a test, which is never committed."""

    @pytest.mark.django_db
    def test_creates_and_moves_add_none_that_nobody_listens_to(self, django_capture_on_commit_callbacks):
        with django_capture_on_commit_callbacks() as callbacks:
            line = Line.objects.create()
            Line.objects.bulk_create([Line(), Line()])
            line.state = "second"
            line.save()
            line.transition_perform("first")
            Line.objects.update(state="second")
            Line.stator.retry()
            transaction.on_commit(print)
        assert callbacks == [print]

    @pytest.mark.django_db
    @pytest.mark.parametrize("signal", [signals.became_ready, signals.transitioned], ids=["ready", "moved"])
    def test_receivers_of_a_project_are_told_when_the_functions_are_run(
        self, signal, django_capture_on_commit_callbacks
    ):
        with hearing(signal) as told, django_capture_on_commit_callbacks(execute=True) as callbacks:
            Line.objects.create().transition_perform("second")
        assert {sender for sender, _ in told} == {Line}
        assert len(callbacks) == len(told)


# Signals and log lines that follow the commit of outcomes


@pytest.fixture
def operations():
    return FakeOperations("testapp.line")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("orders", "did"),
    [
        ("by hand", "the handler itself moved it to delivered"), ("delete", "the handler itself deleted it"),
        ("move rows", "the handler itself moved it to delivered"),
        ("delete rows", "the object is gone: the handler or somebody else deleted it"),
    ],
)  # fmt: skip
def test_handler_that_ends_its_own_claim_is_told_what_to_do_instead(caplog, orders, did):
    caplog.set_level(logging.INFO, "stator")
    Parcel.objects.create(orders=orders)
    drain(Parcel)
    [line] = [record for record in caplog.records if record.message == "stator.claim_ended"]
    assert (line.levelno == logging.WARNING) == ("itself" in did)
    assert did in line.why
    assert ("return the next state instead" if "itself" in did else "returns a state with delete_after") in line.why


@pytest.mark.parametrize(("error", "level"), [(ValueError("no"), logging.ERROR), (Fail("no"), logging.WARNING)])
def test_failure_on_purpose_is_a_warning_and_any_other_an_error(operations, caplog, error, level):
    with hearing(signals.failed) as heard:
        tell(operations, Written(failures=[(7, describe(error))]))
    assert [values["failures"][0][0] for _, values in heard] == [7]
    [line] = caplog.records
    assert (line.message, line.levelno, line.pk, line.message_text) == ("stator.attempt_failed", level, "7", "no")


def test_receiver_that_raises_is_logged_and_the_others_are_called(operations, caplog):
    def bad(sender, **values):
        raise RuntimeError("no")

    with connected(transitioned, bad), hearing(transitioned) as heard:
        send_moves(operations, [Move(7, "called", "done")])
    assert len(heard) == 1
    [line] = [line for line in caplog.records if line.name == "stator.worker"]
    assert (line.message, "bad" in line.receiver) == ("stator.receiver_failed", True)
