"""The planner takes the indexes that come with the mixin. PostgreSQL alone says how it reads a table."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from stator.db import chores
from stator.db.look import look
from tests.stator.rows import automatic, operations_of
from tests.testapp.basic import Step

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

# One in a hundred is ready; the others rest, a few of them due, expired or past a timeout.
FILL = """
INSERT INTO testapp_step
    (state, name, state_ready, state_changed, state_next_attempt, state_attempts, state_failures, state_crashes,
     state_version, state_claim, state_locked_until)
SELECT CASE WHEN n %% 100 = 0 THEN 'new' WHEN n %% 7 = 0 THEN 'outside' WHEN n %% 2 = 0 THEN 'done' ELSE 'new' END, '',
    n %% 100 = 0,
    now() - CASE WHEN n %% 10000 = 7 THEN 3 ELSE 1 END * interval '1 hour',
    CASE WHEN n %% 2 = 1 AND n %% 7 > 0 THEN now() + (n - 300) * interval '1 second' END,
    0, 0, 0, 0,
    CASE WHEN n %% 100 = 3 THEN '00000000-0000-8000-8000-000000000001'::uuid END,
    CASE WHEN n %% 100 = 3 THEN now() + (n - 5000) * interval '1 second' END
FROM generate_series(1, %s) AS n
"""
ROWS = 100_000


@pytest.fixture(scope="module")
def filled(django_db_setup, django_db_blocker):
    """A table of a hundred thousand rows, of which a thousand are ready."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(FILL, [ROWS])
        cursor.execute("VACUUM ANALYZE testapp_step")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE testapp_step")
        cursor.execute("ANALYZE testapp_step")


def plans(do):
    """What the planner says of each statement on the table that ``do`` makes."""
    with CaptureQueriesContext(connection) as queries:
        do()
    found = []
    for query in queries:
        # Our own setting, sent ahead of the statement, would hide what the planner would rather do.
        sql = re.sub(r"^SET LOCAL [^;]*; ", "", query["sql"])
        if "testapp_step" in sql and re.match(r"(WITH|SELECT|UPDATE|DELETE)\b", sql):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql.replace('%', '%%')}", None if "%" not in sql else ())
                found.append("\n".join(line for (line,) in cursor.fetchall()))
    return found


@pytest.fixture(params=["vendor", "portable"])
def operations(request, filled):
    return operations_of(Step, request.param)


CASES = {
    "claim": (lambda operations: operations.claim(automatic(operations), 100), "st_ready_"),
    "claim of a suspect": (lambda operations: operations.claim(automatic(operations), 1, alone=True), "st_crash_"),
    "reap": (lambda operations: operations.reap(100), "st_lease_"),
    "mark ready": (lambda operations: chores.mark_ready(operations, 1000), "st_rest_"),
    "time out": (lambda operations: chores.time_out(operations, 1000), "st_rest_"),
    "delete": (lambda operations: chores.delete_due(operations, 1000), "st_rest_"),
    "look": (look, "st_"),
    "sample the queue": (lambda operations: chores.sample_depth(operations, 1000), "st_ready_"),
}


@pytest.mark.parametrize(("do", "index"), CASES.values(), ids=CASES)
def test_statement_reads_its_index_and_never_the_whole_table(operations, do, index):
    statements = []
    told = plans(lambda: statements.append(do(operations)))
    assert told
    assert index in "\n".join(told)
    for plan in told:
        assert "Seq Scan on testapp_step" not in plan, plan


def test_claim_takes_the_oldest_of_a_thousand_ready_rows(operations):
    claims = operations.claim(automatic(operations), 100)
    assert len(claims) == 100
    assert [claim.pk for claim in claims] == sorted(claim.pk for claim in claims)
