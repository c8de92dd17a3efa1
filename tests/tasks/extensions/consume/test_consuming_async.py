"""The loop of a named worker in async code."""

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from tasks.exceptions import TaskError
from tasks.models import Run, Task
from tasks.queue import claiming
from tasks.queue.consuming import MAX_WAIT
from tasks.queue.waiting import waiters
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.making import fresh, publish, statuses

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nobody_waits():
    yield
    names = ("tasks-waiting", "heartbeats of a consumer")
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


async def until(condition):
    """As ``wait_until``, for what other tasks of the event loop bring about."""
    async with asyncio.timeout(PATIENCE):
        while not await sync_to_async(condition)():
            await asyncio.sleep(0.02)


def run(function):
    """Run what returns an awaitable, with the connections of this thread."""

    async def awaited():
        return await function()

    return async_to_sync(awaited)()


def test_loop_waits_for_a_task_and_is_woken_by_it_and_by_its_end(queue):
    async def bot():
        loop = queue.aconsume(worker="bot-1")
        work = asyncio.create_task(loop.run(done))
        await until(lambda: len(waiters) == 1)
        await queue.apublish("a")
        await until(lambda: Task.objects.filter(state="completed").exists() and len(waiters) == 1)
        loop.stop()
        # Not only when it looks again by itself.
        async with asyncio.timeout(MAX_WAIT / 2):
            await work

    async def done(claim):
        return {"ok": True}

    run(bot)
    assert Task.objects.get().result == {"ok": True}


def test_function_that_raises_fails_its_task_alone_after_its_local_retries(queue):
    tasks, made = publish(queue, "ab"), []
    loop = queue.aconsume(worker="bot-1", local_retries=1, local_delay=0.01)

    async def work(claim):
        made.append(claim.task.action)
        if claim.task.action == "a":
            raise RuntimeError("no such image")
        loop.stop()
        return object()

    run(lambda: loop.run(work))
    assert made == ["a", "a", "b"]
    assert statuses(tasks) == ["pending", "pending"]
    failed, unstorable = Run.objects.order_by("task")
    assert "RuntimeError: no such image" in failed.reason
    assert "cannot be stored as JSON" in unstorable.reason


def test_cancelled_bot_releases_what_it_began(queue):
    tasks = publish(queue, "ab")

    async def bot():
        begun = asyncio.Event()

        async def work(claim):
            begun.set()
            await asyncio.Event().wait()

        work = asyncio.create_task(queue.aconsume(worker="bot-1", limit=2).run(work))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(bot)
    assert statuses(tasks) == ["pending"] * 2
    assert [fresh(task).attempts for task in tasks] == [1, 0]


def test_bot_that_is_cancelled_in_the_middle_of_a_claim_hands_it_back(queue, monkeypatch):
    (task,) = publish(queue, "a")
    claiming_now, go_on = threading.Event(), threading.Event()
    claim = claiming.claim

    def slow(*args):
        found = claim(*args)
        claiming_now.set()
        assert go_on.wait(PATIENCE)
        return found

    monkeypatch.setattr(claiming, "claim", slow)

    async def bot():
        async def work(claim):
            raise AssertionError("it was cancelled before")

        work = asyncio.create_task(queue.aconsume(worker="bot-1").run(work))
        await asyncio.to_thread(claiming_now.wait, PATIENCE)
        work.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await work

    run(bot)
    assert (fresh(task).status, fresh(task).attempts) == ("pending", 0)


def test_heartbeats_go_on_while_the_thread_of_the_database_is_busy(queue):
    (task,) = publish(queue, "a", heartbeat_interval=0.1)
    loop = queue.aconsume(worker="bot-1")

    def hold_the_thread():
        first = Run.objects.get().lease_until
        wait_until(lambda: Run.objects.get().lease_until > first)

    async def work(claim):
        await sync_to_async(hold_the_thread)()
        loop.stop()

    run(lambda: loop.run(work))
    assert (fresh(task).status, fresh(task).attempts) == ("completed", 1)


def test_function_is_cancelled_when_its_claim_is_lost_and_the_loop_goes_on(queue):
    first, _ = publish(queue, "ab", heartbeat_interval=0.1)
    loop, told = queue.aconsume(worker="bot-1", local_retries=3), []

    async def work(claim):
        if claim.task.action == "b":
            return loop.stop()
        try:
            # On a slow machine the loss may be noticed before this returns.
            await first.acancel(running=True)
            await asyncio.Event().wait()
        finally:
            told.append(claim.lost)

    run(lambda: loop.run(work))
    assert told == [True]
    assert sorted(Task.objects.values_list("state", flat=True)) == ["canceled", "completed"]


def test_claim_waits_without_a_thread(queue):
    async def both():
        waiting = asyncio.create_task(queue.aclaim(worker="bot-1", wait=20))
        await until(lambda: len(waiters) == 1)
        await queue.apublish("a")
        [claim] = await waiting
        assert await queue.aclaim(worker="bot-1", wait=0.1) == []
        return claim.task.action

    assert run(both) == "a"
    with transaction.atomic(), pytest.raises(TaskError, match="inside a transaction"):
        run(lambda: queue.aclaim(worker="bot-1", wait=1))
