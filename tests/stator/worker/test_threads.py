"""Threads for database work, and what is known of their connections."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection

from stator.worker import connections, thread_pool
from stator.worker.thread_pool import database_thread_for_handlers
from stator.worker.threads import DatabaseThread, tidy_connections_of_loop
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import until


async def test_threads_of_handlers_are_not_waited_for_when_a_call_does_not_end(monkeypatch):
    monkeypatch.setattr(thread_pool, "CLOSING_TIME", PATIENCE)
    gate = threading.Event()
    async with database_thread_for_handlers() as pool:
        call = asyncio.create_task(asyncio.to_thread(gate.wait, 10))
        await until(lambda: pool.threads)
    assert not call.done()
    gate.set()
    assert await call


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
async def test_database_thread_knows_without_asking_whether_it_is_connected():
    thread = DatabaseThread("test")
    assert not thread.is_connected("default")
    await thread.connect("default")
    assert thread.is_connected("default")
    thread.connections["default"].connection.close()
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
async def test_queries_of_asynchronous_handlers_find_a_checked_connection():
    async with database_thread_for_handlers():
        first = await sync_to_async(backend)()
        await asyncio.to_thread(terminate, first)
        await tidy_connections_of_loop()
        assert await sync_to_async(backend)() != first


def session():
    """This thread, and its session with the database."""
    connection.ensure_connection()
    return threading.current_thread(), connection.connection


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
async def test_further_threads_end_with_the_worker_and_keep_no_connection():
    async with database_thread_for_handlers():
        found = await asyncio.gather(*(run(session) for run in FURTHER.values()))
        assert not any(driver.closed for _, driver in found)
    assert [(thread.is_alive(), driver.closed) for thread, driver in found] == [(False, True)] * len(found)


async def test_call_that_nobody_awaits_any_more_is_not_begun_and_its_thread_is_replaced(monkeypatch):
    monkeypatch.setattr(thread_pool, "LOOP_THREADS", 1)
    stuck, begun = threading.Event(), []
    async with database_thread_for_handlers() as pool:
        first = asyncio.create_task(asyncio.to_thread(lambda: begun.append("first") or stuck.wait(PATIENCE)))
        second = asyncio.create_task(asyncio.to_thread(begun.append, "second"))
        await until(lambda: begun)
        second.cancel()
        first.cancel()
        assert await asyncio.wait_for(asyncio.to_thread(str, 1), PATIENCE) == "1"
        assert (begun, pool.exhausted) == (["first"], True)
        stuck.set()
        await until(lambda: not pool.exhausted)


async def test_errors_of_calls_in_further_threads_are_raised():
    async with database_thread_for_handlers():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        # asyncio does not raise this one, which would end a generator, as it is.
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.to_thread(next, iter(()))
