"""Threads for synchronous actions in real workers: when actions that do not return hold all of them."""

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from tasks.models import Queue, Task
from tests.processes import settings_module, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

FROZEN = 70
TROUBLE = "every thread for synchronous actions runs an action that does not return"


def publish(action: str, **columns: Any) -> Task:
    queue, _ = Queue.objects.get_or_create(name="default")
    return Task.objects.create(queue=queue, action=action, priority=1, **columns)


def hang() -> Task:
    return publish("hang", timeout=0.5, max_attempts=1)


def events(worker: Any, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in worker.output().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def status_of(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.fixture
def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def settings_of_one_thread(tmp_path: Any, transactional_db: None) -> dict[str, str]:
    return settings_module(tmp_path, 'STATOR_TASKS = {"THREADS": 1}\nSTATOR["WATCHDOG"] = 20')


def test_worker_without_a_thread_left_is_not_ready_and_ends(
    worker_process: Any, settings_of_one_thread: dict[str, str], free_port: int
) -> None:
    options = ("tasks.Task", "--json-logs", "--metrics-port", str(free_port))
    with worker_process(*options, **settings_of_one_thread) as worker:
        wait_until(lambda: status_of(free_port, "/ready") == 200, 60, worker.output)
        hang()
        wait_until(lambda: status_of(free_port, "/ready") == 503, 60, worker.output)
        assert worker.wait(60) == FROZEN, worker.output()
        assert [event["trouble"] for event in events(worker, "stator.frozen")] == [TROUBLE]
        # What holds the thread is in the dump.
        assert "in hang\n" in worker.output()


def test_supervisor_starts_another_which_does_the_rest(
    worker_process: Any, settings_of_one_thread: dict[str, str]
) -> None:
    hang()
    with worker_process("tasks.Task", "--json-logs", "--processes", "2", **settings_of_one_thread) as worker:
        wait_until(lambda: events(worker, "stator.worker_died"), 60, worker.output)
        good = [publish("echo") for _ in range(5)]
        wait_until(lambda: Task.objects.filter(state="completed").count() == len(good), 120, worker.output)
        died = events(worker, "stator.worker_died")
        assert worker.stop() == 0, worker.output()
    assert {event["exit_code"] for event in died} == {FROZEN}
