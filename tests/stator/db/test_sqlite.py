"""Which files of an SQLite database a worker keeps open when somebody else holds the only write lock."""

import gc
import sqlite3
from contextlib import closing
from threading import Thread

import psutil
import pytest
from django.db import OperationalError, connection

from tests.stator.making import operations_of
from tests.testapp.basic import Step

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]

TIMES = 10


@pytest.fixture
def collects_nothing():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_files():
    """How often this process has the file of the database open."""
    name = connection.settings_dict["NAME"]
    return sum(file.path == str(name) for file in psutil.Process().open_files())


def fail_and_close(failed):
    """Wait for the lock in vain and close the connection of this thread, as a worker does after an error."""
    operations = operations_of(Step)
    for _ in range(TIMES):
        try:
            with operations.transaction(wait=0.01):
                Step.objects.update(name="late")
        except OperationalError as error:
            failed.append(str(error))
        connection.close()


def test_connection_that_is_closed_after_a_lock_timeout_closes_its_file_at_once(collects_nothing):
    failed = []
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as locker:
        locker.execute("BEGIN EXCLUSIVE")
        before = open_files()
        thread = Thread(target=fail_and_close, args=[failed])
        thread.start()
        thread.join()
        # One stays, because to close it would lose the lock of the other connections in this process.
        assert open_files() <= before + 1
    assert failed == ["database is locked"] * TIMES
