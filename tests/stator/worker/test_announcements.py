"""Signals and log lines that follow the commit of outcomes."""

import logging
import time

import pytest

from stator import signals
from stator.db.interface import Written
from stator.exceptions import Fail
from stator.graph.failures import describe
from stator.signals import Move
from stator.testing import drain
from stator.worker.announcements import send_moves, tell
from tests.stator.running import hearing
from tests.stator.worker.fakes import FakeClaim, FakeOperations
from tests.testapp.operators import Parcel


@pytest.fixture
def operations():
    return FakeOperations("testapp.line")


def test_moves_come_with_the_instances_that_the_worker_has(operations):
    claim = FakeClaim(operations)
    written = Written(moves=[Move(claim.pk, "called", "done")])
    with hearing(signals.transitioned) as heard, hearing(signals.failed) as failed:
        tell(operations, written, [claim])
    [(sender, values)] = heard
    assert (sender, values["using"], values["moves"]) == (operations.model, "default", written.moves)
    assert (values["failures"], values["instances"]) == ([], {claim.pk: claim.instance})
    assert failed == []


@pytest.mark.parametrize(
    ("in_time", "level", "event", "signal", "other"),
    [
        (False, logging.WARNING, "stator.lease_lost", signals.lease_lost, signals.claim_ended),
        (True, logging.INFO, "stator.claim_ended", signals.claim_ended, signals.lease_lost),
    ],
)
def test_lease_that_ran_out_and_claim_that_somebody_ended_are_two_events(
    operations, caplog, in_time, level, event, signal, other
):
    claim = FakeClaim(operations)
    # A renewal was refused while the lease ran; without that, the time alone tells.
    claim.deadline, claim.taken_back = time.monotonic() - 100, in_time
    caplog.set_level(logging.INFO)
    with hearing(signal) as heard, hearing(other) as not_heard:
        tell(operations, Written(lost=[claim]))
    assert [values["pks"] for _, values in heard] == [[claim.pk]]
    assert not_heard == []
    [line] = caplog.records
    assert (line.message, line.levelno, line.model, line.pk) == (event, level, "testapp.line", str(claim.pk))
    assert (line.state, line.token) == ("called", claim.token.hex)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("orders", "did"),
    [("by hand", "moved it to delivered"), ("move rows", "moved it to delivered"), ("delete", "deleted it")],
)
def test_handler_that_ends_its_own_claim_is_told_what_to_do_instead(caplog, orders, did):
    Parcel.objects.create(orders=orders)
    drain(Parcel)
    [line] = [record for record in caplog.records if record.message == "stator.claim_ended"]
    assert line.levelno == logging.WARNING
    assert f"the handler itself {did}" in line.why
    assert "return the next state instead" in line.why


@pytest.mark.django_db
def test_object_that_is_gone_may_be_the_handlers_own_doing(caplog):
    caplog.set_level(logging.INFO, "stator")
    Parcel.objects.create(orders="delete rows")
    drain(Parcel)
    [line] = [record for record in caplog.records if record.message == "stator.claim_ended"]
    assert "the object is gone: the handler or somebody else deleted it" in line.why
    assert "returns a state with delete_after" in line.why


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

    signals.transitioned.connect(bad)
    try:
        with hearing(signals.transitioned) as heard:
            send_moves(operations, [Move(7, "called", "done")])
    finally:
        signals.transitioned.disconnect(bad)
    assert len(heard) == 1
    [line] = [line for line in caplog.records if line.name == "stator.worker"]
    assert (line.message, "bad" in line.receiver) == ("stator.receiver_failed", True)
