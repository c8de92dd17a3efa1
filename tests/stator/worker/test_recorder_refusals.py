"""An outcome that the database refuses ends neither the worker nor the outcomes beside it."""

import logging

import pytest
from django.db import connection

from stator.models import Report
from stator.runner import StatorRunner
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def forbidden():
    """A row that a constraint of the application's own keeps from leaving its first state."""
    lines = [Line.objects.create() for _ in range(5)]
    pk = lines[2].pk
    table = Line._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT stays CHECK (id <> {pk} OR state = 'first')")
        elif connection.vendor == "mysql":
            # A constraint cannot name a column that the server numbers.
            cursor.execute(
                f"CREATE TRIGGER stays BEFORE UPDATE ON {table} FOR EACH ROW IF NEW.id = {pk} AND NEW.state <> 'first'"
                " THEN SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = 'stays'; END IF"
            )
        else:
            cursor.execute(
                f"CREATE TRIGGER stays BEFORE UPDATE ON {table} WHEN NEW.id = {pk} AND NEW.state <> 'first'"
                " BEGIN SELECT RAISE(ABORT, 'stays'); END"
            )
    yield lines[2]
    with connection.cursor() as cursor:
        drop = (
            f"ALTER TABLE {table} DROP CONSTRAINT stays" if connection.vendor == "postgresql" else "DROP TRIGGER stays"
        )
        cursor.execute(drop)


def test_refused_outcome_becomes_an_error_of_its_row_and_spoils_no_other(forbidden, caplog):
    caplog.set_level(logging.ERROR, "stator")
    StatorRunner([Line], until_idle=True).run()
    forbidden.refresh_from_db()
    assert (forbidden.state, forbidden.state_failures, forbidden.state_claim) == ("first", 1, None)
    assert Line.stator.counts() == {"first": 1, "second": 0, "last": 4}
    assert "IntegrityError" in Report.objects.get(object_pk=str(forbidden.pk)).error
    assert "stator.record_refused" in caplog.messages
