"""Transactions on MariaDB: how long they wait, at which isolation, and which rows a claim locks."""

from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection

from stator.db.locks import LOCKED, limit_waits
from stator.db.mysql import SPARE
from tests.stator.making import operations_of, put
from tests.testapp.basic import Step

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("transactional_db")]


def shortest() -> int:
    """The shortest wait for a table: no second on MariaDB, one on MySQL."""
    return 0 if connection.mysql_is_mariadb else 1  # type: ignore[attr-defined]


def waits() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout")
        return cursor.fetchone()


@pytest.fixture
def operations():
    # A session that waits as long as its settings say.
    connection.close()
    return operations_of(Step)


def test_statements_of_a_worker_wait_for_a_second_and_those_of_others_as_long_as_before(operations):
    usual = waits()
    with operations.transaction():
        assert waits() == usual
    limit_waits([operations])
    with operations.transaction():
        assert waits() == (1, 1)
    with operations.transaction(wait=30):
        assert waits() == (1, 1)
    with operations_of(Step).transaction():
        assert waits() == usual


def test_statement_after_a_timeout_does_not_wait_for_tables(operations):
    limit_waits([operations])
    operations.locks.suspend("claim", LOCKED)
    with operations.transaction():
        assert waits() == (1, shortest())
    operations.locks.end("claim")
    with operations.transaction():
        assert waits() == (1, 1)


def test_handler_waits_as_long_as_its_session_and_its_record_in_haste(operations):
    usual = waits()
    limit_waits([operations])
    with operations.handler_transaction():
        assert waits() == usual
        operations.hurry()
        assert waits() == (1, 1)
    assert waits() == usual


def test_session_that_the_server_has_ended_is_replaced(operations, other_connection):
    """Django replaces a connection only after an error that it has seen."""
    limit_waits([operations])
    with operations.transaction():
        pass
    operations.locks.suspend("claim", LOCKED)
    with other_connection() as cursor:
        cursor.execute("KILL CONNECTION %s", [connection.connection.thread_id()])
    with pytest.raises(OperationalError), operations.transaction():
        pass
    connection.close_if_unusable_or_obsolete()
    with operations.transaction():
        assert waits() == (1, shortest())


def test_transaction_reads_what_was_committed_whatever_the_session_does(operations, monkeypatch):
    # Django sets the attribute when it connects.
    connection.ensure_connection()
    monkeypatch.setattr(connection, "isolation_level", "repeatable read")
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with operations.transaction():
            put(Step)
            cursor.execute(
                "SELECT trx_isolation_level FROM information_schema.innodb_trx"
                " WHERE trx_mysql_thread_id = CONNECTION_ID()"
            )
            assert cursor.fetchone() == ("READ COMMITTED",)
    connection.close()


def test_claim_passes_over_as_many_rows_as_others_have_locked(operations, other_connection):
    steps = [put(Step) for _ in range(SPARE + 20)]
    with other_connection() as cursor:
        cursor.execute("BEGIN")
        held = [step.pk for step in steps[: SPARE + 15]]
        # By the keys: a scan of another index would lock every row of it.
        cursor.execute(f"SELECT id FROM {Step._meta.db_table} FORCE INDEX (PRIMARY) WHERE id IN %s FOR UPDATE", [held])
        found = operations.claim(list(operations.graph.automatic_states), 3)
        cursor.execute("ROLLBACK")
    assert [claim.pk for claim in found] == [step.pk for step in steps[SPARE + 15 : SPARE + 18]]


@pytest.fixture
def other_connection():

    @contextmanager
    def opened():
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                yield cursor
        finally:
            other.close()

    return opened
