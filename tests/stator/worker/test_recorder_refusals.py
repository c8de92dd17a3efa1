"""An outcome that the database refuses ends neither the worker nor the outcomes beside it."""

import logging
from contextlib import contextmanager

import pytest
from django.db import connection

from stator.models import Report
from stator.runner import StatorRunner
from tests.stator.making import put, row
from tests.testapp.basic import Step
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def kept_in(row, *states):
    """Meanwhile a constraint of the application's own allows a row these states only."""
    table, pk, wrong = row._meta.db_table, row.pk, f"NEW.state NOT IN ({', '.join(map(repr, states))})"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            allowed = wrong.replace("NEW.state NOT", "state")
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT stays CHECK (id <> {pk} OR {allowed})")
        elif connection.vendor == "mysql":
            # A constraint cannot name a column that the server numbers.
            cursor.execute(
                f"CREATE TRIGGER stays BEFORE UPDATE ON {table} FOR EACH ROW IF NEW.id = {pk} AND {wrong}"
                " THEN SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = 'stays'; END IF"
            )
        else:
            cursor.execute(
                f"CREATE TRIGGER stays BEFORE UPDATE ON {table} WHEN NEW.id = {pk} AND {wrong}"
                " BEGIN SELECT RAISE(ABORT, 'stays'); END"
            )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            is_constraint = connection.vendor == "postgresql"
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT stays" if is_constraint else "DROP TRIGGER stays")


@pytest.fixture
def forbidden():
    """A row that a constraint of the application's own keeps from leaving its first state."""
    lines = [Line.objects.create() for _ in range(5)]
    with kept_in(lines[2], "first"):
        yield lines[2]


def test_refused_outcome_becomes_an_error_of_its_row_and_spoils_no_other(forbidden, caplog):
    caplog.set_level(logging.ERROR, "stator")
    StatorRunner([Line], until_idle=True).run()
    forbidden.refresh_from_db()
    assert (forbidden.state, forbidden.state_failures, forbidden.state_claim) == ("first", 1, None)
    assert Line.stator.counts() == {"first": 1, "second": 0, "last": 4}
    assert "IntegrityError" in Report.objects.get(object_pk=str(forbidden.pk)).error
    assert "stator.record_refused" in caplog.messages


@pytest.mark.parametrize(("states", "end"), [(("new", "failed"), "failed"), (("new",), "new")])
def test_refusals_in_a_row_lead_where_errors_in_a_row_do_unless_that_is_refused_too(states, end):
    step = put(Step, state_failures=2)
    with kept_in(step, *states):
        StatorRunner([Step], until_idle=True).run()
    now = row(step)
    assert (now.state, now.state_failures, now.state_claim) == (end, 0 if end == "failed" else 3, None)
    assert "IntegrityError" in Report.objects.get(object_pk=str(step.pk)).error


def test_refusal_backs_off_like_an_error():
    step = put(Step)
    with kept_in(step, "new"):
        StatorRunner([Step], until_idle=True).run()
    now = row(step)
    assert (now.state, now.state_failures) == ("new", 1)
    assert (now.state_next_attempt - now.state_attempted).total_seconds() == pytest.approx(30, abs=10)
