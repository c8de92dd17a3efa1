"""The mixin added to a table that is in use, and workers that find a table half migrated (F27)."""

import threading
from contextlib import closing, contextmanager
from time import monotonic

import psycopg
import pytest
from django.db import connection

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.extensions.problems.commands.doctor import tables
from stator.rows.problem import OK
from tests.adopting import TABLE, apply, before, execute, generated, table_to_adopt
from tests.processes import wait_until
from tests.projects import conninfo
from tests.sizes import CROWDED

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# Seconds for which the application may have to wait for one of its statements.
STALL = 1.0


@pytest.fixture
def trunk():
    """A model as it will be, with the mixin; its table is that of before."""
    with table_to_adopt() as model:
        yield model


@contextmanager
def in_use(waits):
    """A program of before changes and inserts rows meanwhile; ``waits`` gets the seconds of each statement."""
    ended = threading.Event()

    def use():
        with closing(psycopg.connect(**conninfo(connection.settings_dict), autocommit=True)) as program:
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

    with in_use(waits):
        apply(generated(trunk, before()), before())
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
