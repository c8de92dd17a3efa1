"""Sessions that a handler leaves changed, and how they are cleaned."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from stator.worker import connections as of_worker
from stator.worker.connections import (
    changes_session,
    check_rested_connections,
    clean_connections,
    own_connections,
    watch_session,
)
from tests.sizes import PATIENCE
from tests.stator.running import connected
from tests.testapp.models import Line

if connection.vendor == "postgresql":
    from psycopg.sql import SQL, Identifier

    from stator.db.session import session_of


@pytest.mark.parametrize(
    "statement",
    [
        "SET search_path TO tenant", "  -- whose?\n set search_path to tenant", "/* whose? */ SET ROLE tenant",
        "RESET ALL", "DISCARD ALL", "DEALLOCATE ALL", "PRAGMA foreign_keys = OFF", "CREATE TEMP TABLE t (a int)",
        "create local temporary table t (a int)", "SELECT set_config('search_path', 'tenant', false)",
        "SELECT 1, pg_catalog.set_config('search_path', 'tenant', false)", "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_lock_shared(1)", "SELECT GET_LOCK('door', 5)",
        "LOCK TABLES doors WRITE", "USE tenant",
    ],
)  # fmt: skip
def test_statement_that_changes_the_session_is_seen(statement):
    assert changes_session(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1", "UPDATE settings SET value = 'SET search_path'", "SET LOCAL search_path TO tenant",
        "SET CONSTRAINTS ALL DEFERRED", "SELECT pg_advisory_xact_lock(1)", "SELECT advisory_locks FROM doors",
        "CREATE TABLE temporary (a int)", "LOCK TABLE doors IN SHARE MODE", "SELECT * FROM users",
    ],
)  # fmt: skip
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

    in_thread(work)
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

    in_thread(work)
    assert found[0] is not found[1]


SETTING = {"postgresql": "SET TIME ZONE 'UTC'", "sqlite": "PRAGMA user_version", "mysql": "SET time_zone = '+00:00'"}


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

    with connected(connection_created, set_something):
        in_thread(work)
    assert len(found) == 2
    assert found[0] is found[1]


def in_thread(function):
    """Return what a function returns in a thread of its own, or raise its error."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result(PATIENCE)


def end_of_session():
    """End this thread's session from the server's side; Django and the driver do not know it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()

    def terminate():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        connections.close_all()

    in_thread(terminate)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "use", [lambda: Line.objects.exists(), lambda: session_of(connection)], ids=["orm", "our statements"]
)
def test_session_that_the_server_ended_during_a_rest_fails_no_handler(monkeypatch, use):
    monkeypatch.setattr(of_worker, "RESTED", 0.0)

    def work():
        own_connections()
        end_of_session()
        clean_connections()
        check_rested_connections()
        use()
        connections.close_all()

    in_thread(work)


@pytest.fixture
def pooled(monkeypatch):
    """Django takes connections from a pool of one."""
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1, "max_size": 1, "timeout": 0.5}}
    for name, value in {"OPTIONS": options, "CONN_MAX_AGE": 0}.items():
        monkeypatch.setitem(connection.settings_dict, name, value)
    yield
    in_thread(lambda: connection.close_pool())


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_threads_of_a_worker_neither_empty_a_pool_nor_hand_sessions_on_through_it(pooled):
    together, found = threading.Barrier(3), []

    def work():
        own_connections()
        for _ in range(2):
            with connection.cursor() as cursor:
                cursor.execute("SHOW search_path")
                found.append(cursor.fetchone()[0])
                cursor.execute("SET search_path TO tenant")
            together.wait(PATIENCE)
            clean_connections()
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ['"$user", public'] * 6
    # A thread of a website, of which it is none.
    assert in_thread(lambda: connection.pool is not None)
