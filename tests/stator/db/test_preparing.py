"""A statement that fails before a handler is called costs no attempt."""

import pytest
from django.db import DataError, InterfaceError, OperationalError, ProgrammingError

from stator.db.preparing import LATER, PREPARING, SOON
from stator.exceptions import LeaseLost, NotBegun, TryAgainLater
from stator.graph.outcomes import Moved, Released
from stator.worker.executor import attempt_sync
from tests.statements import failing
from tests.stator.making import operations_of, put, row
from tests.testapp.faults import Effect
from tests.testapp.harmed import Booking, BookingGraph

# More than an atomic attempt sends before it calls its handler.
MAX_STATEMENTS = 4


def test_error_of_the_database_says_that_the_attempt_did_not_begin():
    for kind, longest in {
        OperationalError: SOON,
        InterfaceError: SOON,
        ProgrammingError: LATER,
        DataError: LATER,
    }.items():
        with pytest.raises(NotBegun, match="the attempt did not begin: ") as raised, PREPARING:
            raise kind("odd")
        assert longest / 2 <= raised.value.after <= longest
        assert type(raised.value.__cause__) is kind


@pytest.mark.parametrize("error", [ValueError("odd"), TryAgainLater(), LeaseLost(), KeyboardInterrupt()], ids=repr)
def test_other_errors_stay_what_they_are(error):
    error.__context__ = None if isinstance(error, ValueError) else OperationalError("before")
    with pytest.raises(type(error)) as raised, PREPARING:
        raise error
    assert raised.value is error


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("nth", range(MAX_STATEMENTS))
def test_no_statement_before_an_atomic_handler_costs_an_attempt(monkeypatch, nth):
    booking = put(Booking, state_failures=2)
    operations = operations_of(Booking)
    (claim,) = operations.claim([BookingGraph.fresh], 1)
    # From that one on: an atomic attempt is tried twice before its handler is called.
    with failing(monkeypatch, lambda number: number >= nth, lambda: not claim.started) as sent:
        attempted = attempt_sync([claim])
    if len(sent) <= nth:
        # It was the handler's turn.
        assert nth > 0
        assert [outcome for _, outcome in attempted.recorded] == [Moved(BookingGraph.halfway)]
        return
    ((_, outcome),) = attempted.ended
    assert isinstance(outcome, Released)
    assert outcome.after > 0
    assert not operations.record(attempted.ended).lost
    found = row(booking)
    assert (found.state_attempts, found.state_failures, found.state_claim) == (0, 2, None)
    assert not Effect.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_object_that_could_not_be_loaded_for_an_outage_is_released():
    put(Booking)
    (claim,) = operations_of(Booking).claim([BookingGraph.fresh], 1)
    claim.unreadable = OperationalError("the connection was cut")
    ((_, outcome),) = attempt_sync([claim]).ended
    assert isinstance(outcome, Released)
