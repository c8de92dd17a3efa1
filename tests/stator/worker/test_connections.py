"""Sessions that a handler leaves changed, and how they are cleaned."""

import threading

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from stator.worker.connections import changes_session, clean_connections, watch_session
from tests.testapp.models import Line

if connection.vendor == "postgresql":
    from psycopg.sql import SQL, Identifier


@pytest.mark.parametrize(
    "statement",
    [
        "SET search_path TO tenant",
        "  -- whose?\n set search_path to tenant",
        "/* whose? */ SET ROLE tenant",
        "RESET ALL",
        "DISCARD ALL",
        "DEALLOCATE ALL",
        "PRAGMA foreign_keys = OFF",
        "CREATE TEMP TABLE t (a int)",
        "create local temporary table t (a int)",
        "SELECT set_config('search_path', 'tenant', false)",
        "SELECT 1, pg_catalog.set_config('search_path', 'tenant', false)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock(1)",
        "SELECT pg_advisory_lock_shared(1)",
        "SELECT GET_LOCK('door', 5)",
        "LOCK TABLES doors WRITE",
        "USE tenant",
    ],
)
def test_statement_that_changes_the_session_is_seen(statement):
    assert changes_session(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "UPDATE settings SET value = 'SET search_path'",
        "SET LOCAL search_path TO tenant",
        "SET CONSTRAINTS ALL DEFERRED",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT advisory_locks FROM doors",
        "CREATE TABLE temporary (a int)",
        "LOCK TABLE doors IN SHARE MODE",
        "SELECT * FROM users",
    ],
)
def test_what_ends_with_its_transaction_is_none(statement):
    assert not changes_session(statement)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("composed", [False, True])
def test_changed_session_is_not_met_by_the_next(composed):
    found = []

    def look():
        with connection.cursor() as cursor:
            cursor.execute("SHOW search_path")
            found.append(cursor.fetchone()[0])

    def work():
        watch_session(connection)
        for _ in range(2):
            look()
            with connection.cursor() as cursor:
                name = Identifier("tenant")
                cursor.execute(SQL("SET search_path TO {}").format(name) if composed else "SET search_path TO tenant")
            clean_connections()
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ['"$user", public'] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", ["BEGIN", None])
def test_transaction_or_end_behind_the_back_of_django_is_not_met_by_the_next(statement):
    """``None``: the connection of the driver is closed."""
    found = []

    def work():
        watch_session(connection)
        for _ in range(2):
            connection.ensure_connection()
            found.append(connection.connection)
            connection.cursor().execute(statement) if statement else connection.connection.close()
            clean_connections()
            Line.objects.exists()
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] is not found[1]


SETTING = {
    "postgresql": "SET TIME ZONE 'UTC'",
    "sqlite": "PRAGMA user_version",
    "mysql": "SET time_zone = '+00:00'",
}


@pytest.mark.django_db(transaction=True)
def test_what_is_set_while_a_connection_is_opened_is_no_change_of_a_handler():
    """On MySQL Django itself sets the isolation level then, so every session would be discarded after one use."""
    found = []

    def set_something(sender, connection, **kwargs):
        with connection.cursor() as cursor:
            cursor.execute(SETTING[connection.vendor])

    def work():
        watch_session(connection)
        for _ in range(2):
            connection.ensure_connection()
            found.append(connection.connection)
            clean_connections()
        connections.close_all()

    connection_created.connect(set_something)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        connection_created.disconnect(set_something)
    assert len(found) == 2
    assert found[0] is found[1]
