"""Threads for database work, and what is known of their connections."""

import pytest

from stator.worker.threads import DatabaseThread
from tests.processes import wait_until
from tests.stator.worker.fakes import on_loop


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@on_loop
async def test_database_thread_knows_without_asking_whether_it_is_connected():
    thread = DatabaseThread("test")
    assert not thread.is_connected("default")
    await thread.connect("default")
    assert thread.is_connected("default")
    thread._connections["default"].connection.close()
    assert not thread.is_connected("default")
    await thread.connect("default")
    assert thread.is_connected("default")
    thread.stop(30)
    wait_until(lambda: not thread.is_connected("default"))
