"""Threads for synchronous actions in real workers: when actions that do not return hold all of them."""

import asyncio
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from stator.worker.thread_pool import ThreadPool
from tests.processes import events, settings_module, wait_until
from tests.servers.user import free_port
from tests.sizes import PATIENCE
from tests.tasks.actions.making import make

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

FROZEN = 70
TROUBLE = "every thread for synchronous actions runs an action that does not return"


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
        make("hang", timeout=0.5, max_attempts=1)
        wait_until(lambda: status_of(port, "/ready") == 503, message=worker.output)
        assert worker.wait() == FROZEN, worker.output()
        assert [event["trouble"] for event in events(worker.output(), "stator.frozen")] == [TROUBLE]
        # The frame that holds the thread is in the dump.
        assert "in hang\n" in worker.output()


@pytest.mark.django_db(transaction=True)
class TestThreads:
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
