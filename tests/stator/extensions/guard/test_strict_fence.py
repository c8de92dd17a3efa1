"""Strict mode (security rule S13): a raw write that revives an ended claim is refused, and nothing else is."""

from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from stator.extensions.guard.doctor import triggers
from stator.graph.outcomes import Moved, Released
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.problem import OK, WARNING
from stator.strict_fence import TRIGGER, StrictFence
from stator.testing import drain
from tests.stator.dividing import migrate
from tests.stator.making import claim_all, expire, operations_of, put, raw, row
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.postgresql
BOTH = pytest.mark.parametrize("implementation", ["vendor", "portable"])


def made():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_trigger WHERE tgname = %s", [TRIGGER])
        triggers = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM pg_proc WHERE starts_with(proname, %s)", [TRIGGER])
        return triggers, cursor.fetchone()[0]


@pytest.fixture
def strict():
    migrate(StrictFence("Line"))
    yield
    migrate(StrictFence("Line"), backwards=True)


def write_back(old):
    """Write a row as it was read earlier, past the framework, all columns of it."""
    names = [*FRAMEWORK_COLUMNS, "state"]
    raw(Line).filter(pk=old.pk).update(**{name: getattr(old, name) for name in names})


def claimed():
    line, operations = put(Line), operations_of(Line)
    [claim] = claim_all(operations)
    return operations, claim, row(line)


def reaped(operations, old):
    expire(old)
    assert operations.reap(10)


def claimed_by_another(operations, old):
    reaped(operations, old)
    Line.stator.retry()
    [_] = claim_all(operations_of(Line))


def moved(operations, old):
    old.transition_perform("second")


def unlocked(operations, old):
    Line.stator.filter(pk=old.pk).unlock()


ENDED = pytest.mark.parametrize("end", [reaped, claimed_by_another, moved, unlocked])


@ENDED
@on_postgresql
@pytest.mark.usefixtures("strict")
def test_raw_write_that_revives_an_ended_claim_is_refused(end):
    operations, claim, old = claimed()
    end(operations, row(old))
    after = row(old)
    told = f"revive an ended claim, or an earlier version, of testapp_line {old.pk}"
    with pytest.raises(IntegrityError, match=told), transaction.atomic():
        write_back(old)
    written = operations.record([(claim, Moved(Line.state_graph.states["second"]))])
    assert written.lost == [claim]
    assert row(old).state_version == after.state_version


@on_postgresql
@pytest.mark.usefixtures("strict")
def test_claim_that_no_worker_made_and_an_earlier_version_are_refused():
    line = put(Line)
    with pytest.raises(IntegrityError), transaction.atomic():
        raw(Line).filter(pk=line.pk).update(state_claim=uuid4())
    drain(Line)
    with pytest.raises(IntegrityError), transaction.atomic():
        write_back(line)


@BOTH
@on_postgresql
@pytest.mark.usefixtures("strict")
def test_what_workers_and_operators_write_is_not(implementation):
    line, operations = put(Line), operations_of(Line, implementation)
    [claim] = claim_all(operations)
    operations.renew([claim])
    row(line).save()
    raw(Line).filter(pk=line.pk).update(name="by raw SQL")
    operations.record([(claim, Released())])
    [claim] = claim_all(operations)
    expire(line)
    assert operations.reap(10)
    Line.stator.retry()
    [claim] = claim_all(operations)
    operations.record([(claim, Moved(Line.state_graph.states["second"]))])
    row(line).transition_perform("first")
    drain(Line)
    assert row(line).state == "last"


@on_postgresql
def test_trigger_is_made_once_and_dropped_again():
    operation = StrictFence("Line")
    migrate(operation)
    migrate(operation)
    assert made() == (1, 1)
    migrate(StrictFence("Line", enabled=False))
    assert made() == (0, 0)
    migrate(StrictFence("Line", enabled=False), backwards=True)
    assert made() == (1, 1)
    migrate(operation, backwards=True)
    assert made() == (0, 0)


@on_postgresql
@pytest.mark.usefixtures("strict")
def test_it_survives_renames_of_the_model_and_of_its_key():
    operations, _, old = claimed()
    moved(operations, old)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_line RENAME TO testapp_row")
        cursor.execute("ALTER TABLE testapp_row RENAME COLUMN id TO number")
        told = f"revive an ended claim, or an earlier version, of testapp_row {old.pk}"
        with pytest.raises(IntegrityError, match=told), transaction.atomic():
            cursor.execute("UPDATE testapp_row SET state_version = 0 WHERE number = %s", [old.pk])
        cursor.execute("UPDATE testapp_row SET name = 'other'")
        cursor.execute("ALTER TABLE testapp_row RENAME COLUMN number TO id")
        cursor.execute("ALTER TABLE testapp_row RENAME TO testapp_line")


@on_postgresql
def test_function_stays_while_another_table_needs_it():
    migrate(StrictFence("Line"))
    migrate(StrictFence("Step"))
    assert made() == (2, 1)
    migrate(StrictFence("Line", enabled=False))
    assert made() == (1, 1)
    migrate(StrictFence("Step"), backwards=True)
    assert made() == (0, 0)


@on_postgresql
def test_table_without_a_claim_is_refused():
    with pytest.raises(ValueError, match="Author has no state_claim in its own table"):
        migrate(StrictFence("Author"))


@on_postgresql
def test_trigger_that_is_switched_off_is_a_warning(strict):
    assert [one.level for one in triggers("default", [Line])] == [OK]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Line._meta.db_table} DISABLE TRIGGER {TRIGGER}")
    [one] = triggers("default", [Line])
    assert one.level == WARNING
    assert one.sentence.startswith(f"{TRIGGER} is disabled on {Line._meta.db_table}, so")
