"""Waiting for tasks of a queue in one process."""

import threading

import pytest
from asgiref.sync import async_to_sync

from tasks.queue.waiting import AsyncWake, Waiters, auntil_some, awaited, with_ready
from tests.processes import wait_until
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nobody_watches(transactional_db):
    yield
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tasks-waiting"])


@pytest.fixture
def quiet(monkeypatch):
    """Those that wait, without a thread that polls for them."""
    monkeypatch.setattr(Waiters, "_watch", lambda waiting: None)
    return Waiters()


def test_queues_with_a_ready_task_are_found(queue):
    empty, later = make_queue("empty"), make_queue("later")
    queue.publish("resize")
    later.publish("resize", invisible_for=60)
    assert with_ready({queue.pk, empty.pk, later.pk}, "default") == {queue.pk}


def test_only_those_that_wait_for_the_queue_are_woken(queue, quiet):
    other, woken = make_queue("other"), []
    with (
        quiet.join(awaited(queue), lambda: woken.append("first")),
        quiet.join(awaited(other), lambda: woken.append("second")),
    ):
        quiet.wake({awaited(queue)})
        assert woken == ["first"]
        quiet.wake()
    assert woken == ["first", "first", "second"]
    assert len(quiet) == 0


def test_async_code_waits_without_a_thread_and_is_woken_by_another(queue):
    tries = []

    async def wait():
        woken = AsyncWake()

        async def attempt():
            tries.append(1)
            if len(tries) == 1:
                threading.Thread(target=woken.set).start()
                return []
            return ["task"]

        threading.Thread(target=woken.set).start()
        return await auntil_some(attempt, queue, 30, woken=woken)

    assert async_to_sync(wait)()[0] == ["task"]
    assert len(tries) == 2
