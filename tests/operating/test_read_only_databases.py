"""A database that takes no writes: each tool says so, and a worker that is started ends at once."""

from contextlib import contextmanager

import pytest
from django.db import connection

from stator.db.engines import refusal_of_writes
from tests.operating.tools import shell
from tests.processes import WorkerProcess, settings_module
from tests.stator.making import put
from tests.testapp.basic import Step

pytestmark = pytest.mark.django_db(transaction=True)

# Settings by which another process may only read the file.
OF_FILE = """
DATABASES["default"]["NAME"] = f'file:{DATABASES["default"]["NAME"]}?mode=ro'
DATABASES["default"]["OPTIONS"] = {"uri": True}
"""


@contextmanager
def read_only():
    """Have every new session, and this one, find the database read-only."""
    if connection.vendor == "postgresql":
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        connection.close()
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SET default_transaction_read_only = off")
                cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            connection.close()
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = on")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = off")


@pytest.fixture
def waiting(admin_user):
    if connection.vendor == "mysql":
        pytest.skip("what makes it read-only is of the whole server")
    return put(Step)


def test_each_tool_says_that_it_is_read_only(waiting):
    assert refusal_of_writes(connection) == ""
    with read_only():
        status, doctor = shell("stator", "status"), shell("stator", "doctor", "--database", "default")
    for text in (status, doctor):
        assert "read-only" in text
        assert "start runstator." not in text
        assert "writable, with" not in text
    assert "No problems" not in status
    # What this command says would only be true of a database that takes writes.
    assert "-> manage.py runstator" not in status


def test_worker_ends_at_once_and_says_why(waiting, tmp_path):
    variables = settings_module(tmp_path, OF_FILE) if connection.vendor == "sqlite" else {}
    with read_only(), WorkerProcess("--until-idle", **variables) as worker:
        assert worker.wait() == 75
        lines = [line for line in worker.output().splitlines() if line.startswith("runstator:")]
    [line] = lines
    assert "is read-only" in line
