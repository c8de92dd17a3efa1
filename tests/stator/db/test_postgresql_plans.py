"""The planner takes the indexes that come with the mixin. PostgreSQL alone says how it reads a table."""

import re
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from stator import claims as program_claims
from stator.db import chores
from stator.db.claims import Watermark
from stator.db.probe import look, new_watermark, overdue
from stator.extensions.stats import chores as of_stats
from stator.graph.outcomes import Released, Waiting
from stator.rows.claimable import Crashes
from stator.statements import Statement
from tests.emptying import empty
from tests.stator.making import automatic, operations_of
from tests.testapp.basic import Step
from tests.testapp.dated import Circular, Watch
from tests.testapp.faults import Job

if connection.vendor == "postgresql":
    from stator.db import postgresql, session

pytestmark = [pytest.mark.postgresql, pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")]

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
    if connection.vendor != "postgresql":
        yield
        return
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(FILL, [ROWS])
        cursor.execute("VACUUM ANALYZE testapp_step")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        empty("default")
        cursor.execute("VACUUM ANALYZE testapp_step")


class Explained:
    """The plans of the statements on a table, as they are made by our own cursor and by Django's.

    ``hinted``: the plans of those with settings for the planner.
    """

    def __init__(self, table):
        self.plans, self.hinted = [], []
        self._table = table
        self._send = postgresql.send

    def __call__(self, execute, sql, params, many, context):
        self._explain(sql, params)
        return execute(sql, params, many, context)

    def rows(self, connection, statement, params):
        """In place of our own cursor: a setting sent ahead of a statement is in force for its plan too."""
        self._explain(statement, params)
        return self._send(connection, statement, params)

    def _explain(self, statement, params):
        verbs = "WITH|SELECT|UPDATE|DELETE|EXECUTE"
        parts = re.match(rf"\s*((?:SET LOCAL [^;]*; )*)\s*((?:{verbs})\b.*)", statement, re.DOTALL)
        if parts is None or not (self._table in statement or "EXECUTE" in statement):
            return
        explained = f"{parts[1]}EXPLAIN {parts[2]}"
        self.plans.append("\n".join(line for (line,) in self._send(connection, explained, list(params or []))))
        if "enable_seqscan" in parts[1]:
            self.hinted.append(self.plans[-1])


@pytest.fixture
def explained(monkeypatch, operations):
    with explaining("testapp_step", monkeypatch) as notes:
        yield notes


@contextmanager
def explaining(table, monkeypatch):
    notes = Explained(table)
    for module in (postgresql, session):
        monkeypatch.setattr(module, "send", notes.rows)
    with connection.execute_wrapper(notes):
        yield notes


@pytest.fixture
def operations(filled, django_db_blocker):
    with django_db_blocker.unblock():
        # A session prepares what it has sent some times, and EXPLAIN shows no statement that is just being prepared.
        connection.close()
        yield operations_of(Step)


CASES = {
    "claim": (lambda operations: operations.claim(automatic(operations), 100), "st_ready_"),
    "claim of crashed": (
        lambda operations: operations.claim(automatic(operations), 50, crashes=Crashes.FEW),
        "st_crash_",
    ),
    "claim of a suspect": (
        lambda operations: operations.claim(automatic(operations), 1, crashes=Crashes.MANY),
        "st_crash_",
    ),
    "reap": (lambda operations: operations.reap(100), "st_lease_"),
    "mark ready": (lambda operations: chores.mark_ready(operations, 1000), "st_rest_"),
    "time out": (lambda operations: chores.time_out(operations, 1000), "st_rest_"),
    "delete": (lambda operations: chores.delete_due(operations, 1000), "st_rest_"),
    "look": (look, "st_"),
    "sample the queue": (lambda operations: of_stats.sample_depths(operations, limit=1000), "st_ready_"),
}


@pytest.mark.parametrize(("do", "index"), CASES.values(), ids=CASES)
def test_statement_reads_its_index_and_never_the_whole_table(operations, explained, do, index):
    do(operations)
    assert index in "\n".join(explained.plans)
    for plan in explained.plans:
        assert "Seq Scan on testapp_step" not in plan, plan


def test_what_is_due_or_expires_some_day_is_not_read(operations, explained):
    look(operations)
    overdue(operations)
    chores.mark_ready(operations, 1000)
    operations.reap(1000)
    assert len(explained.plans) >= 6
    read = [line for plan in explained.plans for line in plan.splitlines() if "Filter:" in line]
    assert read
    for line in read:
        assert "state_next_attempt" not in line
        assert "state_locked_until" not in line


def test_recorded_rows_are_reached_by_their_keys(operations, explained):
    claims = operations.claim(automatic(operations), 100)
    explained.plans.clear()
    operations.record([(claim, Waiting(60.0)) for claim in claims])
    operations.renew(claims)
    assert "testapp_step_pkey" in "\n".join(explained.plans)
    for plan in explained.plans:
        assert "Seq Scan on testapp_step" not in plan, plan


def test_claim_from_where_the_last_ended_begins_there_in_the_index(operations, explained, monkeypatch):
    monkeypatch.setattr("stator.db.claims.HEAD_EVERY", 600.0)
    assert len(operations.claim(automatic(operations), 100)) == len(operations.claim(automatic(operations), 100)) == 100
    first, second = (plan[: plan.index("Filter")] for plan in explained.plans)
    assert "Index Cond" not in first
    assert "Index Cond: (ROW(COALESCE(state_next_attempt, state_changed), id) > ROW(" in second


def test_claims_and_polls_from_a_watermark_begin_there_in_the_index(operations, explained, monkeypatch):
    monkeypatch.setattr("stator.db.claims.SLOW", -1.0)
    watermark = new_watermark(operations)
    operations.claims.lines.watermark = Watermark(watermark, has_before=False)
    claims = [*operations.claim(automatic(operations), 2000), *operations.claim(automatic(operations), 2000)]
    look(operations, watermark=watermark)
    _, claim, poll = explained.plans
    operations.record([(each, Released()) for each in claims])
    assert "Index Cond: (COALESCE(state_next_attempt, state_changed) >= " in claim
    for column in ("COALESCE(state_next_attempt, state_changed)", "state_next_attempt", "state_locked_until"):
        assert re.search(rf"Index Cond: .*\({re.escape(column)} >= '", poll), poll


def test_statement_that_is_prepared_keeps_to_its_index(operations, explained, monkeypatch):
    # However long the machine takes, no claim returns to the head of the line, or asks for the places of rows.
    monkeypatch.setattr("stator.db.claims.HEAD_EVERY", 600.0)
    monkeypatch.setattr("stator.db.claims.STRAINED_FROM", 600.0)
    for _ in range(session.USES + 3):
        claims = operations.claim(automatic(operations), 10)
        operations.record([(claim, Waiting(60.0)) for claim in claims])
    claim, record = explained.plans[-2:]
    # Of parameters, which are values in a plan that is made for one time.
    assert "Index Cond: (ROW(COALESCE(state_next_attempt, state_changed), id) > ROW($" in claim
    assert re.findall(r"Scan using (st_[a-z]+)", claim) == ["st_ready"], claim
    assert re.search(r"\(\(state\)::text = \$\d", record), record
    assert re.findall(r"Scan using (\w+) on", record) == ["testapp_step_pkey"], record
    assert "Seq Scan on testapp_step" not in claim + record


@pytest.fixture
def compiling(django_db_blocker):
    """A session whose server compiles each statement, whatever it costs; no test where the server has no compiler."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_jit_available()")
        if not cursor.fetchone()[0]:
            pytest.skip("this PostgreSQL has no compiler (LLVM); DB=distribution bin/test uses one that has")
        cursor.execute("SET jit_above_cost = 0")
        yield
        cursor.execute("RESET jit_above_cost")


def test_no_statement_with_settings_for_the_planner_is_compiled(operations, explained, compiling):
    """What such a statement cannot avoid although it is off counts as if it took ages; nobody may pay for that."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM testapp_step WHERE name = 'a'")
        assert "JIT:" in explained.plans.pop()
    for do, _ in CASES.values():
        do(operations)
    for _ in range(session.USES + 2):
        claims = operations.claim(automatic(operations), 10)
        operations.renew(claims)
        operations.record([(claim, Waiting(60.0)) for claim in claims])
    assert len(explained.hinted) > len(CASES)
    for plan in explained.hinted:
        assert "JIT:" not in plan, plan


def test_pauses_are_counted_by_an_index_alone(operations, monkeypatch):
    """Where no index serves, a hint makes a scan look as if it took ages."""
    with explaining("stator_pause", monkeypatch) as explained:
        look(operations)
    [plan] = explained.plans
    assert "Seq Scan" not in plan, plan
    assert "Index Only Scan using stator_pause_in_force on stator_pause" in plan, plan


def save(claim):
    claim.instance.stator = claim
    claim.instance.note = "b"
    claim.instance.save(update_fields=["note"])


def renewal():
    return Now() + timedelta(seconds=60), Q()


def hold(claim):
    return program_claims.hold(claim, "hold", renewal, {}, {}, also=Statement(""), then=lambda: None)


OF_CLAIMED = {
    "save": save,
    "verify": lambda claim: claim.operations.holds(claim),
    "extend": lambda claim: claim.operations.extend(claim, 60.0),
    "renew": lambda claim: claim.operations.renew([claim]),
    "find": lambda claim: program_claims.find(Job, claim.pk, claim.token),
    "find many": lambda claim: program_claims.find_many(Job, {claim.pk: claim.token}),
    "hold": hold,
}


@pytest.mark.django_db
@pytest.mark.parametrize("do", OF_CLAIMED.values(), ids=OF_CLAIMED)
def test_claimed_row_is_found_by_its_key_though_the_planner_knows_of_no_leases(do, monkeypatch):
    with connection.cursor() as cursor:
        Job.objects.bulk_create(Job() for _ in range(2000))
        cursor.execute("ANALYZE testapp_job")
    operations = operations_of(Job)
    claim, *_ = operations.claim(automatic(operations), 500)
    with explaining("testapp_job", monkeypatch) as explained:
        do(claim)
    assert explained.plans
    for plan in explained.plans:
        assert "st_lease_" not in plan, plan
        assert "testapp_job_pkey" in plan, plan


FILL_CIRCULARS = """
INSERT INTO testapp_circular (state, name, patience, send_after, state_next_attempt, state_ready, state_changed)
SELECT CASE WHEN n %% 2 = 0 THEN 'queued' ELSE 'reminding' END, '', interval '0',
    now() + (CASE WHEN n %% 10 < 2 THEN -n ELSE n END) * interval '1 second',
    CASE WHEN n %% 10 < 2 AND n %% 1000 > 2 THEN now() + n * interval '1 second' END, false, now()
FROM generate_series(1, %s) AS n
"""


FILL_WATCHES = """
INSERT INTO testapp_watch (state, name, kept_for, alert_after, state_ready, state_changed)
SELECT CASE WHEN n %% 2 = 0 THEN 'up' WHEN n %% 3 = 0 THEN 'down' ELSE 'forgotten' END, '', interval '0',
    CASE WHEN n %% 5 > 0 THEN now() + (CASE WHEN n %% 2 = 0 THEN n ELSE -n END) * interval '1 second' END, false, now()
FROM generate_series(1, %s) AS n
"""


DATED = {
    "starts": (Circular, FILL_CIRCULARS, "st_try", "send_after", chores.mark_ready),
    "deadlines": (Watch, FILL_WATCHES, "st_at", "alert_after", chores.time_out),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("does", [False, True], ids=["look", "do"])
@pytest.mark.parametrize(("model", "fill", "prefix", "column", "duty"), DATED.values(), ids=DATED)
def test_rows_past_their_dates_are_found_by_their_index_and_no_others_are_read(
    model, fill, prefix, column, duty, does, monkeypatch
):
    table, operations = model._meta.db_table, operations_of(model)
    with connection.cursor() as cursor:
        cursor.execute(fill, [ROWS])
        cursor.execute(f"ANALYZE {table}")
    names = [index.name for index in model._meta.indexes if index.name.startswith(prefix)]
    with explaining(table, monkeypatch) as explained:
        duty(operations, 1000) if does else look(operations)
    plans = "\n".join(explained.plans)
    assert len(names) == 2
    for name in names:
        assert re.search(rf"(using|on) {name}", plans), plans
    assert f"Seq Scan on {table}" not in plans, plans
    for line in plans.splitlines():
        assert not ("Filter:" in line and column in line and "CASE" not in line), line
