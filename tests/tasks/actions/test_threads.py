"""Threads for synchronous actions in real workers: when actions that do not return hold all of them."""

import asyncio
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from stator.worker.thread_pool import ThreadPool
from tasks.models import Queue, Task
from tests.processes import events, settings_module, wait_until
from tests.servers.user import free_port
from tests.sizes import PATIENCE
from tests.testapp import actions as examples

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

FROZEN = 70
TROUBLE = "every thread for synchronous actions runs an action that does not return"
DISTURBING = {
    "postgresql": "SET search_path TO pg_catalog",
    "sqlite": "PRAGMA user_version",
    "mysql": "SET SESSION sql_mode = 'ANSI_QUOTES'",
}


def publish(action: str, **columns: Any) -> Task:
    queue, _ = Queue.objects.get_or_create(name="default")
    return Task.objects.create(queue=queue, action=action, priority=1, **columns)


def hang() -> Task:
    return publish("hang", timeout=0.5, max_attempts=1)


def leave(how: str) -> None:
    """Leave the connection as no other action may find it."""
    if how == "open":
        transaction.set_autocommit(False)
        Group.objects.create(name="left open")
    elif how == "broken":
        transaction.set_autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")
    elif how == "session":
        with connection.cursor() as cursor:
            cursor.execute(DISTURBING[connection.vendor])
    elif how == "closed":
        Group.objects.exists()
        connection.connection.close()


def status_of(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.fixture
def settings_of_one_thread(tmp_path: Any, transactional_db: None) -> dict[str, str]:
    return settings_module(tmp_path, 'STATOR_TASKS = {"THREADS": 1}\nSTATOR["WATCHDOG"] = 8')


def test_worker_without_a_thread_left_is_not_ready_and_ends(
    worker_process: Any, settings_of_one_thread: dict[str, str]
) -> None:
    port = free_port()
    options = ("tasks.Task", "--json-logs", "--metrics-port", str(port))
    with worker_process(*options, **settings_of_one_thread) as worker:
        wait_until(lambda: status_of(port, "/ready") == 200, message=worker.output)
        hang()
        wait_until(lambda: status_of(port, "/ready") == 503, message=worker.output)
        assert worker.wait() == FROZEN, worker.output()
        assert [event["trouble"] for event in events(worker.output(), "stator.frozen")] == [TROUBLE]
        # The frame that holds the thread is in the dump.
        assert "in hang\n" in worker.output()


def test_supervisor_starts_another_which_does_the_rest(
    worker_process: Any, settings_of_one_thread: dict[str, str]
) -> None:
    hang()
    with worker_process("tasks.Task", "--json-logs", "--processes", "2", **settings_of_one_thread) as worker:
        wait_until(lambda: events(worker.output(), "stator.worker_died"), message=worker.output)
        good = [publish("echo") for _ in range(5)]
        wait_until(lambda: Task.objects.filter(state="completed").count() == len(good), message=worker.output)
        died = events(worker.output(), "stator.worker_died")
        assert worker.stop() == 0, worker.output()
    assert {event["exit_code"] for event in died} == {FROZEN}


@pytest.mark.django_db(transaction=True)
class TestThreads:
    @pytest.mark.parametrize("how", ["open", "broken", "session", "closed"])
    def test_the_next_action_finds_a_clean_connection(self, how: str) -> None:
        threads = ThreadPool(1, "action")

        async def both() -> None:
            with pytest.raises(Exception) if how == "broken" else no_error():
                await threads.run(lambda: leave(how))
            await threads.run(lambda: examples.write("after"))
            await threads.run(lambda: connection.close())

        asyncio.run(both())
        assert [group.name for group in Group.objects.all()] == ["after"]

    def test_a_thread_that_is_given_up_is_replaced_and_ends_with_its_action(self) -> None:
        threads = ThreadPool(1, "action")
        stuck, begun, done = threading.Event(), threading.Event(), threading.Event()

        def hold_out() -> None:
            begun.set()
            stuck.wait(PATIENCE)
            done.set()

        async def give_up() -> str:
            running = asyncio.ensure_future(threads.run(hold_out))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert threads.exhausted
            return str(await threads.run(lambda: "another thread"))

        assert asyncio.run(give_up()) == "another thread"
        stuck.set()
        assert done.wait(PATIENCE)
        wait_until(lambda: not threads.exhausted)

    def test_what_has_not_begun_is_not_run_once_nobody_waits_for_it(self) -> None:
        threads, ran_too_late = ThreadPool(1, "action"), []
        gate = threading.Event()

        async def go() -> None:
            first = asyncio.ensure_future(threads.run(lambda: gate.wait(PATIENCE)))
            second = asyncio.ensure_future(threads.run(lambda: ran_too_late.append(1)))
            await asyncio.sleep(0.01)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            gate.set()
            await first
            await threads.run(lambda: None)

        asyncio.run(go())
        assert ran_too_late == []


class no_error:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
