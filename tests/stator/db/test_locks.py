"""How long a worker's statements wait for locks of others, on a real server, and that nothing else of theirs does."""

from contextlib import closing, contextmanager

import psycopg
import pytest
from django.db import OperationalError, connection

from stator.db import chores
from stator.db.locks import WAIT, limit_waits, together
from stator.db.probe import look
from stator.db.retry import is_lock_timeout
from stator.extensions.stats import chores as of_stats
from stator.graph.outcomes import Moved, Released, Waiting
from stator.worker.executor import LOCKED_OUT, attempt_sync
from tests.stator.making import automatic, operations_of, put, row
from tests.testapp.basic import Step, StepGraph
from tests.testapp.faults import Effect
from tests.testapp.harmed import Booking, Failing

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

if connection.vendor == "postgresql":
    from stator.db.session import USES


def worker_s(model, wait=0.05):
    """The operations of a worker that gives up sooner than others, or as they do."""
    operations = operations_of(model)
    limit_waits([operations])
    operations.locks.wait = wait or operations.locks.wait
    return operations


@pytest.fixture
def operations():
    return worker_s(Step)


@contextmanager
def locked(*tables, mode="ACCESS EXCLUSIVE"):
    given = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}
    with closing(psycopg.connect(**given)) as other:
        other.execute(f"LOCK TABLE {', '.join(tables)} IN {mode} MODE")
        yield
        other.rollback()


def lock_timeout():
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        return cursor.fetchone()[0]


def claimed(operations):
    [claim] = operations.claim(automatic(operations), 1)
    return claim


STEPS = {
    "look": lambda operations, claim: look(operations),
    "claim": lambda operations, claim: operations.claim(automatic(operations), 1),
    "record": lambda operations, claim: operations.record([(claim, Moved(StepGraph.done))]),
    "record an error": lambda operations, claim: operations.record([(claim, Waiting(1.0, reason="not yet"))]),
    "renew": lambda operations, claim: operations.renew([claim], wait=1.0),
    "hand back": lambda operations, claim: operations.release_token(claim.token),
    "reap": lambda operations, claim: operations.reap(10),
    "mark ready": lambda operations, claim: chores.mark_ready(operations, 10),
    "settle": lambda operations, claim: chores.settle(operations, 10),
    "time out": lambda operations, claim: operations.move_rows(operations.rows, "new", StepGraph.done, 10),
    "sample": lambda operations, claim: of_stats.sample_depths(operations, limit=10),
}


@pytest.mark.parametrize("step", STEPS)
def test_step_gives_up_waiting_for_a_table_and_leaves_nothing_in_the_session(operations, step, monkeypatch):
    put(Step)
    claim = claimed(operations)
    sent, fetch = [], operations.transactions.fetch
    monkeypatch.setattr(operations, "fetch", lambda *args, **kwargs: sent.append(1) or fetch(*args, **kwargs))
    with locked("testapp_step"), pytest.raises(OperationalError) as caught:
        STEPS[step](operations, claim)
    assert is_lock_timeout(caught.value)
    # It is not sent again at once.
    assert len(sent) <= 1
    assert lock_timeout() == "0"
    STEPS[step](operations, claim)


def test_only_statements_of_workers_are_limited():
    put(Step)
    workers, others = worker_s(Step, wait=None), operations_of(Step)
    assert (workers.locks.wait, others.locks.wait) == (WAIT, None)
    with workers.transaction():
        assert lock_timeout() == "500ms"
    with workers.transaction(wait=0.0001):
        # Not 0, which would be for ever.
        assert lock_timeout() == "1ms"
    with others.transaction():
        assert lock_timeout() == "0"


def test_handler_waits_for_locks_as_long_as_its_session_says():
    put(Booking)
    operations = worker_s(Booking)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '7s'")
    claim = claimed(operations)
    with operations.handler_transaction():
        assert operations.lock_claimed([claim]) == [claim]
        assert lock_timeout() == "7s"
        assert claim.extend(5)
        assert not operations.record([(claim, Waiting(1.0, reason="not yet"))]).lost
        assert lock_timeout() == "7s"
    assert lock_timeout() == "7s"
    connection.close()


def test_statement_that_timed_out_while_it_was_prepared_is_prepared_later(operations):
    connection.close()
    for _ in range(2 * USES):
        put(Step)
    claims = [claimed(operations) for _ in range(2 * USES)]
    for number, claim in enumerate(claims):
        if number == USES:
            # The sixth use prepares it.
            with locked("testapp_step"), pytest.raises(OperationalError):
                operations.record([(claim, Released())])
        assert not operations.record([(claim, Released())]).lost
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%WITH v AS%'")
        assert cursor.fetchone()[0] == 1


def test_atomic_attempt_whose_outcome_meets_a_locked_table_is_undone_and_no_error():
    booking = put(Booking)
    operations = worker_s(Booking)
    claim = claimed(operations)
    with locked("stator_stats", mode="SHARE"):
        attempted = attempt_sync([claim])
    assert attempted.ended == [(claim, LOCKED_OUT)]
    assert not operations.record(attempted.ended).lost
    assert not Effect.objects.exists()
    assert (row(booking).booked, row(booking).state_failures, row(booking).state_claim) == (0, 0, None)


def test_atomic_attempt_at_a_locked_table_is_released_before_its_handler_is_called():
    booking = put(Booking)
    operations = worker_s(Booking)
    claim = claimed(operations)
    with locked("testapp_booking"):
        ((ended, outcome),) = attempt_sync([claim]).ended
    assert ended is claim
    assert isinstance(outcome, Released)
    assert "lock timeout" in outcome.reason
    assert row(booking).booked == 0


def test_one_statement_for_several_models_leaves_out_what_is_locked():
    models = {model: worker_s(model) for model in (Step, Booking, Failing)}
    for model in models:
        put(model)
    found = {}

    def look_at_all():
        found.clear()
        together(list(models.values()), "look", lambda *group: found.update(look(*group)))
        return {operations.model for operations in found}

    with locked("testapp_booking"):
        assert look_at_all() == {Step, Failing}
        assert [model for model, operations in models.items() if operations.locks.held] == [Booking]
        assert look_at_all() == {Step, Failing}
    models[Booking].locks._keep({})
    assert look_at_all() == set(models)
