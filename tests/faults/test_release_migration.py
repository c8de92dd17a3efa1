"""A filled database of version 1.1 is migrated beside its workers: all that is open there stays valid.

The statements are those of 1.1: they name no column that came later.
"""

from contextlib import contextmanager
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from stator.claims import find
from stator.models import Event, Step, history_of
from stator.rows.life import UNMARKED, life_of
from stator.testing import attempt, drain, steps
from tasks.models import Batch, Task
from tests.stator.making import row
from tests.tasks.making import claim_one, make_queue
from tests.testapp.lives import Contract, NumberedContract
from tests.testapp.stepped import calls

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

TOKEN = UUID("01234567-89ab-8000-8000-000000000001")


@contextmanager
def as_before():
    """The tables as version 1.1 has made them; afterwards they are as they are now."""
    for app in ("tasks", "stator"):
        call_command("migrate", app, "0001_initial", verbosity=0)
    _change(lambda editor: editor.remove_field)
    try:
        yield
    finally:
        migrate()


def migrate():
    call_command("migrate", verbosity=0)
    _change(lambda editor: editor.add_field)


def _change(how):
    """Change the tables of the test app, which has no migrations."""
    with connection.schema_editor() as editor:
        for model in (Contract, NumberedContract):
            for name in UNMARKED:
                there = {column.name for column in _columns(model)}
                if (name in there) == (how(editor).__name__ == "remove_field"):
                    how(editor)(model, model._meta.get_field(name))


def _columns(model):
    with connection.cursor() as cursor:
        return connection.introspection.get_table_description(cursor, model._meta.db_table)


def execute(statement, *params):
    """Send a statement of 1.1, and return what it returns."""
    adapted = [_adapted(param) for param in params]
    with connection.cursor() as cursor:
        cursor.execute(statement, adapted)
        return cursor.fetchall() if cursor.description else []


def _adapted(param):
    if isinstance(param, UUID) and not connection.features.has_native_uuid_field:
        return param.hex
    if isinstance(param, bool) and connection.vendor == "sqlite":
        return int(param)
    return param


def inserts(table, **values):
    names = ", ".join(f'"{name}"' for name in values)
    given = ", ".join(["%s"] * len(values))
    return execute(f"INSERT INTO {table} ({names}) VALUES ({given})", *values.values())


def contract(table, **named):
    now = timezone.now()
    inserts(table, amount=1, broken=False, state="drafted", state_ready=True, state_changed=now, **named)


def claims(table, key, token=TOKEN):
    return execute(
        f"UPDATE {table} SET state_claim = %s, state_locked_until = %s, state_ready = %s, state_attempted = %s, "
        f"state_attempts = state_attempts + 1 WHERE {key} AND state_claim IS NULL",
        token, timezone.now() + timezone.timedelta(hours=1), False, timezone.now(),
    )  # fmt: skip


def records_a_step(table, key, label, name, token=TOKEN):
    """The statement that inserts what it selects of the row, which names the columns of the unique constraint."""
    return execute(
        'INSERT INTO "stator_step" ("model_label", "object_pk", "entered", "name", "state", "result", "at", "attempt", '
        f'"claim") SELECT %s, CAST("{key}" AS varchar(255)), "state_changed", %s, "state", %s, "state_changed", '
        f'"state_attempts", "state_claim" FROM {table} WHERE "state_claim" = %s '
        'ON CONFLICT("model_label", "object_pk", "entered", "name") DO NOTHING RETURNING "name"',
        label, name, '"old"', token,
    )  # fmt: skip


def sends(pk, name, **given):
    values = {"sender": "", "source": "drafted", "to": "", **given}
    inserts("stator_event", model_label="testapp.contract", object_pk=pk, name=name, at=timezone.now(), **values)


def fails(task):
    """What an attempt of a named worker that failed leaves: its run, and an entry in the history that says the same."""
    at, token = timezone.now(), UUID("01234567-89ab-8000-8000-000000000002")
    inserts(
        "tasks_run", task_id=task, shard=0, version=0, worker="bot-0", token=token, claimed=at, lease_until=at,
        unexpected_errors=0, ended=at, outcome="failed", reason="ValueError: no paper",
    )  # fmt: skip
    inserts(
        "stator_history", model_label="tasks.task", object_pk=str(task), at=at, version=0, kind="error",
        source="pending", to="", actor="", reason="", worker=token.hex[:12], claimed=at, attempts=1,
        error="ValueError: no paper", fingerprint="0123456789abcdef",
    )  # fmt: skip


def moves(table, to, key):
    execute(
        f"UPDATE {table} SET state = %s, state_changed = %s, state_attempted = NULL, state_ready = %s, "
        f"state_attempts = 0, state_version = state_version + 1, state_claim = NULL, state_locked_until = NULL "
        f"WHERE {key}",
        to, timezone.now(), False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def clean():
    calls.clear()
    yield
    calls.clear()


@pytest.mark.skipif("connection.vendor == 'mysql'", reason="its workers of 1.1 send other statements")
def test_what_is_open_in_a_database_of_1_1_stays_valid():
    queue = make_queue()
    batch = queue.publish("resize", batch=Batch(queue=queue)).task.batch
    batch.close()
    # What these have written is without the columns of now afterwards.
    of_task = claim_one(queue, lease=600)
    of_task.step("charge", lambda: "receipt 1")
    with as_before():
        contract("testapp_contract", name="a")
        claims("testapp_contract", "name = 'a'")
        assert records_a_step("testapp_contract", "name", "testapp.contract", "price") == [("price",)]
        contract("testapp_contract", name="b")
        sends("b", "approve", version=0, voter="ann", sender="ann")
        fails(of_task.task.pk)
        sends("b", "pay", until=timezone.now() + timezone.timedelta(hours=1), key="invoice 7", source="")
        migrate()
    [claim] = [find(Contract, "a", TOKEN)]
    assert claim.idempotency_key == "testapp.contract:a:0:drafted"
    assert claim.own_steps().call("price", lambda: pytest.fail("it is recorded")) == "old"
    assert steps(row(claim.instance)) == {"price": "old"}
    other = row(Contract(pk="b"))
    assert other.stator.send("pay", key="invoice 7").outcome == "repeated"
    assert other.stator.send("approve", by="ben").outcome == "moved"
    # The kept event was given on the way.
    assert row(other).state == "paid"
    assert steps(of_task.task) == {"charge": "receipt 1"}
    of_task.resolve()
    # The attempt of 1.1 is in both tables, and the one that it began and this version ended in the runs alone.
    history = history_of(Task, of_task.task.pk, "default", 9)
    assert [(entry.to, entry.error, entry.pk is None) for entry in history] == [
        ("completed", "", True), ("", "ValueError: no paper", False),
    ]  # fmt: skip
    batch.refresh_from_db()
    assert batch.counts()["completed"] == 1
    drain(Batch)
    batch.refresh_from_db()
    assert batch.state == "done"


@pytest.mark.skipif("connection.vendor == 'mysql'", reason="its workers of 1.1 send other statements")
def test_workers_of_1_1_work_beside_on_migrated_tables():
    contract("testapp_contract", name="a")
    one = Contract(pk="a")
    assert life_of(row(one)).number == 0
    claims("testapp_contract", "name = 'a'")
    assert records_a_step("testapp_contract", "name", "testapp.contract", "price") == [("price",)]
    assert records_a_step("testapp_contract", "name", "testapp.contract", "price") == []
    execute("UPDATE testapp_contract SET state_claim = NULL, state_locked_until = NULL, state_ready = %s", True)
    # The lease of the other release was lost, and a process of this one goes on.
    attempt(row(one))
    assert not calls
    sends("a", "approve", version=0, voter="ann", sender="ann")
    assert row(one).stator.send("approve", by="ben").outcome == "moved"
    moves("testapp_contract", "drafted", "name = 'a'")
    assert life_of(row(one)).visit == row(one).state_version == 2
    attempt(row(one))
    assert [key for _, key in calls] == ["testapp.contract:a:2:drafted:price"]
    assert Event.objects.count() == 2
    assert Step.objects.count() == 2
