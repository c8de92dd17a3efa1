"""While one table is locked, each tool tells who locks it, since when, and everything about the other models."""

import importlib
import json
import re
import time
from contextlib import closing, nullcontext
from functools import partial

import psycopg
import pytest
from django.db import OperationalError, connection
from django.db.transaction import atomic

from stator.db.looks import bounded
from stator.extensions.problems.kinds import problems_in
from stator.extensions.problems.survey import survey
from stator.survey import looks
from tests.operating.tools import overview, shell
from tests.stator.db.test_locks import locked
from tests.stator.making import put
from tests.testapp.basic import Step
from tests.testapp.operators import Parcel

survey_module = importlib.import_module("stator.extensions.problems.survey")

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def failing():
    """A problem of a model whose table nobody locks."""
    put(Step)
    return put(Parcel, state_ready=False, state_failures=1)


def told(text):
    """The line about the locked table."""
    [line] = {" ".join(line.split()) for line in text.splitlines() if "is locked by session" in line}
    return line


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "tables",
    [("testapp_step",), ("stator_worker",), ("stator_report", "stator_stats", "tasks_queue")],
    ids=lambda tables: tables[0],
)
def test_locked_table_is_named_and_hides_nothing_else(failing, tables):
    # A tool that waited for the lock would never end.
    with locked(*tables):
        for text in (overview(), shell("stator", "status"), shell("stator", "doctor")):
            words = rf"table ({'|'.join(tables)}) is locked by session \d+ \(\w+\), for .*: LOCK TABLE"
            assert re.search(words, " ".join(text.split()))
            assert re.search(r"testapp\.Parcel\W.* failing", " ".join(text.split()))
    assert "is locked" not in shell("stator", "status", "testapp.Step", "tasks.Task")


@pytest.mark.postgresql
def test_lock_costs_one_short_wait_even_if_many_tables_have_it(failing, monkeypatch):
    put(Parcel)
    waits, note = [], looks.Looks._note
    monkeypatch.setattr(looks.Looks, "_note", lambda *given, **rest: (waits.append(given), note(*given, **rest)))
    with locked("testapp_step", "testapp_letter", "testapp_visitor", "testapp_build"):
        found = json.loads(shell("stator", "status", "--json"))["troubles"]
    assert len(waits) == 1
    unread = {one["where"] for one in found if one["code"] == "unread"}
    assert unread == {"testapp.Step", "testapp.Letter", "testapp.Visitor", "testapp.Build"}
    [one] = [one for one in found if one["where"] == "testapp.Step"]
    assert re.search(r"pg_terminate_backend\(\d+\)", one["command"])


@pytest.mark.postgresql
def test_reader_that_a_migration_waits_for_is_who_is_named(failing):
    given = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}
    with closing(psycopg.connect(**given)) as reader, closing(psycopg.connect(**given, autocommit=True)) as migration:
        reader.execute("SELECT 1 FROM testapp_step")
        [[pid]] = reader.execute("SELECT pg_backend_pid()").fetchall()
        migration.execute("SET lock_timeout = '5s'")
        migration.pgconn.send_query(b"ALTER TABLE testapp_step ADD COLUMN more integer")
        with connection.cursor() as cursor:
            waits, until = False, time.monotonic() + 5
            while not waits and time.monotonic() < until:
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                waits = cursor.fetchone()[0]
        assert f"by session {pid}" in told(shell("stator", "status", "testapp.Step"))
        migration.cancel()


@pytest.mark.postgresql
@pytest.mark.parametrize("inside", [False, True])
def test_limits_end_with_the_look(inside):
    def limits():
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
            return cursor.fetchone()

    with atomic() if inside else nullcontext():
        before = limits()
        with bounded("default", 0.2, 1.0):
            assert limits() == ("200ms", "1s")
        assert limits() == before


def test_look_that_takes_too_long_leaves_out_its_model(failing, monkeypatch):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    slow = {"postgresql": "SELECT pg_sleep(9)", "mysql": "SELECT sleep(9)"}

    def long(rows, *read):
        with connection.cursor() as cursor:
            cursor.execute(slow.get(connection.vendor, endless))

    real = survey_module.depths
    monkeypatch.setattr(
        survey_module, "depths", lambda rows, *read: (long if rows.model is Step else real)(rows, *read)
    )
    monkeypatch.setattr(looks, "bounded", partial(bounded, most=0.2))
    found = problems_in(survey("default", [Step, Parcel]))
    [one] = [one for one in found if one.code == "unread"]
    assert one.where == "testapp.Step"
    assert "took longer than" in one.sentence
    assert {one.code for one in found if one.where == "testapp.Parcel"} >= {"failing"}


@pytest.mark.sqlite
def test_locked_file_is_told_once_for_all_it_has(failing, monkeypatch):
    asked = []

    def refused(rows, *read):
        asked.append(rows.model)
        raise OperationalError("database is locked")

    monkeypatch.setattr(survey_module, "depths", refused)
    found = problems_in(survey("default", [Step, Parcel]))
    [one] = [one for one in found if one.code == "unread"]
    assert "another program locks database 'default'" in one.sentence
    assert len(asked) == 1
