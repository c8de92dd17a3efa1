"""Sessions that a handler leaves changed, and how they are cleaned."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from stator.worker.connections import (
    changes_session,
    clean_connections,
    watch_session,
)
from tests.sizes import PATIENCE

if connection.vendor == "postgresql":
    from psycopg.sql import SQL, Identifier


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


def in_thread(function):
    """Return what a function returns in a thread of its own, or raise its error."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result(PATIENCE)
