"""Statements that a session with PostgreSQL keeps prepared, and sessions that are not what they seem to be."""

import pytest
from django.db import DatabaseError, DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from stator.db.retry import is_retryable
from stator.graph.outcomes import Moved
from tests.stator.making import automatic, operations_of, put
from tests.testapp.basic import Step, StepGraph
from tests.testapp.fairness import Ticket, TicketGraph

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

if connection.vendor == "postgresql":
    from stator.db import session
    from stator.db.session import USES, send_in_passing, session_of

ROUNDS = 8


@pytest.fixture(autouse=True)
def new_session(transactional_db, monkeypatch):
    """No other test has prepared anything, nor does a later one meet what these do to it."""
    # Else each claim on a slow machine is from the head of the line, which is another statement.
    monkeypatch.setattr("stator.db.claims.HEAD_EVERY", 3600.0)
    monkeypatch.setattr("stator.db.claims.STRAINED_FROM", 3600.0)
    connection.close()
    yield
    connection.close()


@pytest.fixture
def operations():
    return operations_of(Step)


def prepared():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'stator%%'")
        return cursor.fetchone()[0]


def attempt(operations, outcome):
    [claim] = operations.claim(automatic(operations), 1)
    written = operations.record([(claim, outcome)])
    return not written.lost and not written.deferred


def moved():
    return Moved(StepGraph.done)


@pytest.mark.citus_lacks("INSERT in WITH")
def test_what_is_sent_again_and_again_is_prepared_once(operations):
    for _ in range(ROUNDS):
        put(Step)
    for number in range(ROUNDS):
        assert attempt(operations, moved())
        # The first claim of a worker is from the head of the line, the next go on from there.
        assert prepared() == (0 if number < USES else 1 if number < USES + 1 else 2)
    assert Step.objects.filter(state="done", state_claim=None, state_version=1).count() == ROUNDS


@pytest.mark.parametrize("how", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_session_that_somebody_clears_prepares_no_more(operations, how):
    for _ in range(2 * ROUNDS):
        put(Step)
    for number in range(2 * ROUNDS):
        assert attempt(operations, moved())
        if number == ROUNDS:
            assert session_of(connection).prepares
            with connection.cursor() as cursor:
                cursor.execute(how)
    assert not session_of(connection).prepares
    assert prepared() == 0


def test_session_that_was_cleared_costs_a_transaction_once(operations):
    for _ in range(ROUNDS):
        put(Step)
    for _ in range(ROUNDS - 1):
        assert attempt(operations, moved())
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    # There nothing can be sent again, since the transaction has failed; but all of it can be repeated.
    with pytest.raises(DatabaseError, match="does not exist") as caught, operations.transaction():
        attempt(operations, moved())
    assert is_retryable(caught.value)
    with operations.transaction():
        assert attempt(operations, moved())


def planning():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings WHERE name LIKE 'enable%%' OR name IN ('plan_cache_mode', 'jit')"
        )
        return dict(cursor.fetchall())


def test_what_a_handler_asks_in_its_transaction_is_planned_as_its_session_wants(operations):
    with connection.cursor() as cursor:
        cursor.execute("SET enable_hashjoin = off")
        cursor.execute("SET plan_cache_mode = force_custom_plan")
    usual = planning()
    for _ in range(ROUNDS):
        put(Step)
    for _ in range(ROUNDS):
        [claim] = operations.claim(automatic(operations), 1)
        with operations.handler_transaction():
            assert operations.lock_claimed([claim]) == [claim]
            assert planning() == usual
            assert not operations.record([(claim, moved())]).lost
            assert planning() == usual
    assert prepared() >= 2


def test_claim_in_a_transaction_of_its_own_is_repeated_by_itself():
    operations, state = operations_of(Ticket), TicketGraph.narrow
    for _ in range(ROUNDS + 1):
        put(Ticket, state="narrow")
    for number in range(ROUNDS + 1):
        if number == ROUNDS:
            assert prepared() > 0
            with connection.cursor() as cursor:
                cursor.execute("DEALLOCATE ALL")
        [claim] = operations.claim([state], 1)
        assert operations.record([(claim, Moved(TicketGraph.done))]).moves


@pytest.fixture
def other_type():
    change = "ALTER TABLE testapp_step ALTER COLUMN name TYPE {}"
    with connection.cursor() as cursor:
        yield lambda: cursor.execute(change.format("text"))
        cursor.execute(change.format("varchar(50)"))


def test_column_that_becomes_another_type_is_no_error(operations, other_type):
    for _ in range(ROUNDS + 1):
        put(Step)
    for _ in range(ROUNDS):
        assert attempt(operations, moved())
    other_type()
    assert attempt(operations, moved())
    assert not session_of(connection).prepares


def test_statement_that_cannot_be_prepared_is_sent_as_it_is(operations):
    for _ in range(USES + 3):
        # Of a parameter there the type is not known; of a value it is.
        assert operations.fetch("SELECT pg_typeof(%s)::text", [1], often=True) == [("integer",)]
    assert (prepared(), session_of(connection).prepares) == (0, True)


def test_no_more_than_so_many_are_prepared(operations, monkeypatch):
    monkeypatch.setattr(session, "MAX_PREPARED", 2)
    for number in range(4):
        for _ in range(USES + 1):
            # Also without values.
            assert operations.fetch(f"SELECT {number}", [], often=True) == [(number,)]
    assert prepared() == 2


def test_application_s_own_transaction_is_left_as_it_is(operations):
    with transaction.atomic():
        for _ in range(USES + 2):
            operations.fetch("SELECT %s + 1", [1], often=True)
        assert prepared() == 0
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            assert cursor.fetchone() == ("on",)


def pass_by(times=1):
    for _ in range(times):
        assert send_in_passing(connection, "SELECT 7 %% %s::int", [4]) == [(3,)]


def test_application_s_statement_is_prepared_once_its_connection_is_kept():
    pass_by(2 * USES)
    assert prepared() == 0
    pass_by()
    assert prepared() == 1
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    pass_by(2)
    assert prepared() == 0


def test_application_s_statement_is_seen_by_who_looks_at_queries():
    pass_by(3 * USES)
    with CaptureQueriesContext(connection) as captured:
        pass_by(2)
    assert len(captured) == 2
    seen = []
    with connection.execute_wrapper(lambda execute, *args: seen.append(args[0]) or execute(*args)):
        pass_by()
    assert seen == ["SELECT 7 %% %s::int"]


def test_error_of_an_application_s_statement_is_django_s():
    for _ in range(3 * USES):
        with pytest.raises(DataError, match="division by zero"):
            send_in_passing(connection, "SELECT 1 / %s::int", [0])
