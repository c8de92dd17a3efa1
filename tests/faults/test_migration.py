"""The mixin added to a table that is in use, and workers that find a table half migrated (F27)."""

import threading
from contextlib import closing, contextmanager
from time import monotonic

import psycopg
import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connection, migrations, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.test.utils import isolate_apps

from stator.commands.doctor import tables
from stator.commands.doctor.finding import OK
from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.models import StateField, StatorModel
from tests.faults.fleet import CROWDED
from tests.faults.test_crowd import conninfo
from tests.processes import wait_until
from tests.testapp.faults import Job, JobGraph

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

TABLE = "testapp_trunk"
# Seconds for which the application may have to wait for one of its statements.
STALL = 1.0


@pytest.fixture
def trunk():
    """A model as it will be, with the mixin; its table is that of before."""
    with isolate_apps("tests.testapp"):

        class Trunk(StatorModel):
            label = models.CharField(max_length=100)
            # In the database too: programs of before go on inserting rows.
            state = StateField(JobGraph, db_default="fresh")

            class Meta:
                app_label = "testapp"

        with connection.schema_editor() as editor:
            editor.create_model(before().apps.get_model("testapp", "Trunk"))
        yield Trunk
        with connection.schema_editor() as editor:
            editor.execute(f"DROP TABLE {TABLE}")


def before():
    fields = [("id", models.BigAutoField(primary_key=True)), ("label", models.CharField(max_length=100))]
    state = ProjectState()
    state.add_model(ModelState("testapp", "Trunk", fields))
    return state


def operations_to(model):
    """Return the operations that ``makemigrations`` writes: for the columns, and for the indexes."""
    after = ProjectState()
    after.add_model(ModelState.from_model(model))
    changes = MigrationAutodetector(before(), after)._detect_changes()
    found = [operation for migration in changes["testapp"] for operation in migration.operations]
    indexes = [operation for operation in found if isinstance(operation, migrations.AddIndex)]
    return [operation for operation in found if operation not in indexes], indexes


def apply(state, operations, *, atomic):
    """As a migration of its own; the state after it."""
    with connection.schema_editor(atomic=atomic) as editor:
        for operation in operations:
            after = state.clone()
            operation.state_forwards("testapp", after)
            operation.database_forwards("testapp", editor, state, after)
            state = after
    return state


@contextmanager
def in_use(waits):
    """A program of before changes and inserts rows meanwhile; ``waits`` gets the seconds of each statement."""
    ended = threading.Event()

    def use():
        with closing(psycopg.connect(conninfo(), autocommit=True)) as program:
            while not ended.wait(0.002):
                for statement in (
                    f"UPDATE {TABLE} SET label = 'changed' WHERE id = 1 + (random() * 1000)::int",
                    f"INSERT INTO {TABLE} (label) VALUES ('new')",
                ):
                    began = monotonic()
                    program.execute(statement)
                    waits.append(monotonic() - began)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.postgresql
def test_mixin_is_added_to_a_table_in_use_without_rewriting_it(trunk, thorough):
    rows, waits = 1_000_000 if thorough else 30_000, []
    execute(f"INSERT INTO {TABLE} (label) SELECT 'old' FROM generate_series(1, {rows})")
    file = execute(f"SELECT pg_relation_filenode('{TABLE}')")
    columns, indexes = operations_to(trunk)

    with in_use(waits):
        state = apply(before(), columns, atomic=True)
        apply(state, [AddIndexConcurrently(each.model_name, each.index) for each in indexes], atomic=False)
        seen = len(waits)
        wait_until(lambda: len(waits) > seen + 10)

    print(f"{rows} rows, {len(waits)} statements meanwhile, of which the slowest took {1000 * max(waits):.0f} ms")
    assert execute(f"SELECT count(*) FROM {TABLE}") == rows + len(waits) // 2
    assert execute(f"SELECT pg_relation_filenode('{TABLE}')") == file
    assert max(waits) < STALL + CROWDED
    assert tables.indexes("default", [trunk]).level == OK
    operations = operations_for(trunk, Settings(), new_worker_id())
    claims = operations.claim(list(operations.graph.automatic_states), 100)
    assert {(claim.state.name, claim.attempt) for claim in claims} == {("fresh", 1)}
    assert len(claims) == 100
    assert trunk.objects.filter(state="fresh", state_ready=True).count() == rows + len(waits) // 2 - 100


@pytest.mark.parametrize("column", ["state", "state_claim"])
def test_worker_that_finds_a_column_missing_names_it_and_ends(worker_process, column):
    """Renamed and not dropped, so that the table can be as it was."""
    Job.objects.create()
    execute(f"ALTER TABLE testapp_job RENAME COLUMN {column} TO not_yet")
    try:
        with worker_process("testapp.Job") as worker:
            assert worker.wait(20) == 75
            lines = worker.output().splitlines()
    finally:
        execute(f"ALTER TABLE testapp_job RENAME COLUMN not_yet TO {column}")
    lacks = f"table testapp_job of testapp.Job in database 'default' lacks column {column}"
    assert lines == [f"runstator: {lacks}; run manage.py makemigrations and migrate"]
    assert Job.objects.get().state_attempts == 0


def execute(statement):
    """The first value that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None
