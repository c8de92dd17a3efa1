"""Threads for database work, and what is known of their connections."""

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection

from stator.worker import connections
from stator.worker.threads import DatabaseThread, database_thread_for_handlers, tidy_connections_of_loop
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


def backend():
    """The process of this thread's session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def terminate(pid):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


FURTHER = {
    "to_thread": lambda function, *args: asyncio.to_thread(function, *args),
    "not thread-sensitive": lambda function, *args: sync_to_async(function, thread_sensitive=False)(*args),
}


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("run", FURTHER.values(), ids=FURTHER)
@on_loop
async def test_further_thread_of_a_handler_has_a_usable_connection_after_it_broke(run, monkeypatch):
    async with database_thread_for_handlers():
        first = await run(backend)
        await sync_to_async(terminate)(first)
        with pytest.raises(OperationalError):
            await run(backend)
        second = await run(backend)
        assert second != first
        # After a rest nothing fails even once.
        await sync_to_async(terminate)(second)
        monkeypatch.setattr(connections, "RESTED", 0.0)
        assert await run(backend) not in (first, second)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@on_loop
async def test_queries_of_asynchronous_handlers_find_a_checked_connection():
    async with database_thread_for_handlers():
        first = await sync_to_async(backend)()
        await asyncio.to_thread(terminate, first)
        await tidy_connections_of_loop()
        assert await sync_to_async(backend)() != first
