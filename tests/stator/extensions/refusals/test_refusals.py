"""A row that the database refuses to change ends no worker, and keeps no others from their turn."""

import logging
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, OperationalError, ProgrammingError, connection
from django.db.models.signals import post_delete

from stator.db import chores, suspensions
from stator.db.interface import new_token, new_worker_id
from stator.db.probe import Work, look
from stator.db.retry import is_refusal
from stator.extensions.refusals import condition, refusals
from stator.runner import StatorRunner
from tests.sizes import PATIENCE
from tests.stator.making import ago, automatic, put, raw
from tests.stator.running import connected
from tests.testapp.basic import Diary, Rest, Step
from tests.testapp.fairness import Enquiry, Ticket, TicketGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

HELD = {"state_claim": new_token(new_worker_id()), "state_locked_until": ago(60), "state_ready": False}
LONG_AGO = {"state_changed": ago(9000), "state_ready": False, "state_next_attempt": ago(-86400)}


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    # Not that of the module ``time``: modules that are imported meanwhile would keep this one.
    monkeypatch.setattr(suspensions, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@contextmanager
def refused(model, *pks):
    """Meanwhile the database refuses every change of some rows, as it does where an application adds a constraint."""
    stored = [model._meta.pk.get_db_prep_value(pk, connection) for pk in pks]
    table, listed = model._meta.db_table, ", ".join(f"'{pk}'" for pk in stored)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT unchanging CHECK (id NOT IN ({listed})) NOT VALID")
        elif connection.vendor == "mysql":
            cursor.execute(
                f"CREATE TRIGGER unchanging BEFORE UPDATE ON {table} FOR EACH ROW BEGIN IF NEW.id IN ({listed})"
                " THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'unchanging'; END IF; END"
            )
        else:
            cursor.execute(
                f"CREATE TRIGGER unchanging BEFORE UPDATE ON {table} WHEN NEW.id IN ({listed})"
                " BEGIN SELECT RAISE(ABORT, 'unchanging'); END"
            )
    try:
        yield
    finally:
        drop = (
            f"ALTER TABLE {table} DROP CONSTRAINT unchanging"
            if connection.vendor == "postgresql"
            else "DROP TRIGGER unchanging"
        )
        with connection.cursor() as cursor:
            cursor.execute(drop)


def warnings_of(caplog):
    found = [record for record in caplog.records if record.message == "stator.row_refused"]
    return [(record.deed, record.pk) for record in found if record.levelno == logging.WARNING]


DEEDS = {
    "mark_ready": ({"state_ready": False}, lambda operations: chores.mark_ready(operations, 9)),
    "settle": ({"state": "outside", "state_ready": True}, lambda operations: chores.settle(operations, 9)),
    "reap": (HELD, lambda operations: len(operations.reap(9))),
    "new to late: timed out": (LONG_AGO, lambda operations: chores.time_out(operations, 9).count),
    "older to renewed: renamed": ({"state_ready": True}, lambda operations: chores.rename(operations, 9).count),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_row_that_a_chore_is_refused_is_passed_over_told_of_and_left_alone(make, deed, clock, caplog):
    columns, chore = DEEDS[deed]
    steps = [put(Step, **columns) for _ in range(5)]
    if deed.endswith("renamed"):
        raw(Step).update(state="older")
    operations, bad = make(), steps[1]
    with refused(Step, bad.pk):
        assert chore(operations) == 4
        assert warnings_of(caplog) == [(deed, str(bad.pk))]
        assert chore(operations) == 0
        assert len(warnings_of(caplog)) == 1
        clock[0] += refusals.LEFT_ALONE + 1
        assert chore(operations) == 0
        assert len(warnings_of(caplog)) == 2
        clock[0] += refusals.LEFT_ALONE + 1
        assert chore(operations) == 0
        assert len(warnings_of(caplog)) == 2
    clock[0] += refusals.MAX_SECONDS
    assert chore(operations) == 1


UNIQUE_LATE = ("CREATE UNIQUE INDEX one_late ON testapp_step (name) WHERE state = 'late'", "DROP INDEX one_late")
# Without indexes that have a condition.
ONE_LATE = (
    "ALTER TABLE testapp_step ADD COLUMN one_late varchar(100) AS (CASE WHEN state = 'late' THEN name END) STORED,"
    " ADD UNIQUE INDEX one_late (one_late)",
    "ALTER TABLE testapp_step DROP INDEX one_late, DROP COLUMN one_late",
)


def test_of_rows_that_exclude_each_other_one_is_moved(make, caplog):
    steps = [put(Step, name=name, **LONG_AGO) for name in "aab"]
    with connection.cursor() as cursor:
        cursor.execute(ONE_LATE[0] if connection.vendor == "mysql" else UNIQUE_LATE[0])
    try:
        assert chores.time_out(make(), 9).count == 2
    finally:
        with connection.cursor() as cursor:
            cursor.execute(ONE_LATE[1] if connection.vendor == "mysql" else UNIQUE_LATE[1])
    [(_, left)] = warnings_of(caplog)
    assert raw(Step).get(state="new").pk == int(left)
    assert int(left) in [step.pk for step in steps[:2]]


def test_refused_rows_at_the_head_keep_no_others_from_their_turn(make, monkeypatch, clock):
    monkeypatch.setattr(condition, "AT_ONCE", 2)
    steps = [put(Step, state_ready=False, state_next_attempt=ago(100 - number)) for number in range(7)]
    operations = make()
    with refused(Step, *(step.pk for step in steps[:5])):
        came = [chores.mark_ready(operations, 3) for _ in range(5)]
    assert sum(came) == 2
    assert list(raw(Step).filter(state_ready=True).order_by("pk")) == steps[5:]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(refusals, "MAX_REMEMBERED", 3)
    found = refusals.Refusals("testapp.step")
    for pk in range(9):
        found.note("settle", pk, IntegrityError("no"))
    assert found.others("settle").children == [("pk__in", [6, 7, 8])]
    assert not found.others("claim")


def test_look_does_not_find_what_is_left_alone(make, clock):
    due, late, free = put(Step, state_ready=False), put(Step, **HELD), put(Step)
    operations = make()
    assert look(operations)[operations] == Work(ready=True, due=True, expired=True)
    with refused(Step, due.pk, late.pk, free.pk):
        assert (chores.mark_ready(operations, 9), operations.reap(9)) == (0, [])
        assert operations.claim(automatic(operations), 9) == []
        assert look(operations)[operations] == Work()
        clock[0] += refusals.LEFT_ALONE
        assert look(operations)[operations] == Work(ready=True, due=True, expired=True)


@pytest.mark.django_db(transaction=True)
def test_worker_does_what_it_is_not_refused_and_ends_when_nothing_else_is_left():
    steps = [put(Step, **columns) for columns in ({"state_ready": False}, LONG_AGO, HELD, {}, {})]
    with refused(Step, *(step.pk for step in steps[:4])):
        summary = StatorRunner([Step], until_idle=True, run_for=PATIENCE).run()
    assert summary.ended == "idle"
    assert raw(Step).get(state="done") == steps[4]


def test_error_of_a_statement_is_no_matter_of_rows():
    class Cause(Exception):
        sqlstate = "42501"

    of_a_statement, raised = ProgrammingError("denied"), ProgrammingError("no")
    of_a_statement.__cause__, raised.__cause__ = Cause(), type("Raised", (Cause,), {"sqlstate": "P0001"})()
    assert not is_refusal(of_a_statement)
    assert not is_refusal(ProgrammingError("placeholders"))
    assert not is_refusal(OperationalError("gone"))
    assert all(map(is_refusal, (raised, IntegrityError("no"), DataError("too long"))))


# Claims


@pytest.mark.parametrize("model", [Ticket, Enquiry], ids=["by priority", "in turns"])
def test_row_that_cannot_be_claimed_at_the_head_of_the_line_keeps_no_others(make, model, clock, caplog):
    rows = [put(model, state_changed=ago(100 - number)) for number in range(5)]
    bad, *others = [row.pk for row in rows]
    operations = make(model)
    with refused(model, bad):
        came = [operations.claim([TicketGraph.new], 1) for _ in range(5)]
    assert [claim.pk for claims in came for claim in claims] == others
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("state", ["new", "narrow"])
def test_claims_warn_of_a_row_that_is_refused_again_and_again(make, state, clock, caplog):
    bad = put(Ticket, state=state, state_crashes=0)
    operations = make(Ticket)
    told = []
    with refused(Ticket, bad.pk):
        for _ in range(4):
            assert operations.claim([TicketGraph.states[state]], 9) == []
            told.append(len(warnings_of(caplog)))
            clock[0] += 20
    assert told == [0, 0, 1, 2]


# Deletions


def test_row_that_cannot_be_deleted_is_told_of_and_not_tried_at_every_pass(make, clock, caplog):
    operations = make(Rest)
    kept, *_ = [put(Rest, state_changed=ago(61)) for _ in range(5)]
    diary = Diary.objects.create(rest=kept)
    assert chores.delete_due(operations, 9) == 4
    assert chores.delete_due(operations, 9) == 0
    assert warnings_of(caplog) == [("delete", str(kept.pk))]
    diary.delete()
    clock[0] += refusals.LEFT_ALONE + 1
    assert chores.delete_due(operations, 9) == 1


@pytest.mark.parametrize("error", [ValidationError(["kept", "for ever"]), SystemExit(1), RuntimeError("no")])
def test_row_whose_deletion_a_receiver_refuses_keeps_no_others(make, error, caplog):
    kept, _ = [put(Rest, state_changed=ago(61)) for _ in range(2)]

    def refuse(sender, instance, **values):
        if instance.pk == kept.pk:
            raise error

    with connected(post_delete, refuse, sender=Rest):
        assert chores.delete_due(make(Rest), 9) == 1
    assert [one.pk for one in raw(Rest)] == [kept.pk]
    assert warnings_of(caplog) == [("delete", str(kept.pk))]


@pytest.fixture
def heard():
    """Collect the timeout of each session while a receiver is called for a deletion."""
    idle = []

    def receive(sender, instance, **values):
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                idle.append(cursor.fetchone()[0])

    post_delete.connect(receive, sender=Rest)
    yield idle
    post_delete.disconnect(receive, sender=Rest)


def test_receivers_of_deletions_may_take_their_time(make, heard):
    put(Rest, state_changed=ago(61))
    assert chores.delete_due(make(Rest), 9) == 1
    assert heard in ([], ["0"])
