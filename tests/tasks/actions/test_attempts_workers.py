"""Actions in real workers and their threads."""

import asyncio
import doctest
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from stator.testing import drain
from tasks.actions.threads import Threads
from tasks.models import Queue, Task
from tests.processes import wait_until
from tests.stator.test_testing import run_examples
from tests.tasks.actions.making import make
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
class TestThreads:
    @pytest.mark.parametrize("how", ["open", "broken", "session", "closed"])
    def test_the_next_action_finds_a_clean_connection(self, how: str) -> None:
        threads = Threads(1)

        async def both() -> None:
            with pytest.raises(Exception) if how == "broken" else no_error():
                await threads.run(lambda: examples.dirty(how))
            await threads.run(lambda: examples.write("after"))
            await threads.run(lambda: connection.close())

        asyncio.run(both())
        assert [group.name for group in Group.objects.all()] == ["after"]

    def test_no_more_run_at_a_time_than_there_are_threads(self) -> None:
        threads, lock = Threads(2), threading.Lock()
        running: list[int] = [0]
        most: list[int] = [0]
        gate = threading.Barrier(2)

        def work() -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            gate.wait(10)
            with lock:
                running[0] -= 1

        async def all_of_them() -> None:
            await asyncio.gather(*(threads.run(work) for _ in range(6)))

        asyncio.run(all_of_them())
        assert most == [2]

    def test_a_thread_that_is_given_up_is_replaced_and_ends_with_its_action(self) -> None:
        threads = Threads(1)
        stuck, begun, done = threading.Event(), threading.Event(), threading.Event()

        def hold_out() -> None:
            begun.set()
            stuck.wait(30)
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
        assert done.wait(10)
        wait_until(lambda: not threads.exhausted)

    def test_what_has_not_begun_is_not_run_once_nobody_waits_for_it(self) -> None:
        threads, ran_too_late = Threads(1), []
        gate = threading.Event()

        async def go() -> None:
            first = asyncio.ensure_future(threads.run(lambda: gate.wait(30)))
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


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_it_runs_sync_and_async_actions(self, worker_process: Any) -> None:
        made = [make("resize", {"image": n}) for n in range(20)] + [make("fetch", {"url": str(n)}) for n in range(20)]
        with worker_process("tasks.Task", "--until-idle") as worker:
            assert worker.wait() == 0, worker.output()
        assert Task.objects.filter(state="completed").count() == len(made), worker.output()
        made[3].refresh_from_db()
        assert made[3].result == {"image": 3, "width": 100}

    @pytest.mark.parametrize("action", ["wait", "thread"])
    def test_cancel_ends_what_runs(self, worker_process: Any, action: str) -> None:
        task = make(action)
        with worker_process(
            "tasks.Task", STATOR_LEASE="3", STATOR_REAP_INTERVAL="1", STATOR_SHUTDOWN_TIMEOUT="2"
        ) as worker:
            wait_until(lambda: Task.objects.filter(state_claim__isnull=False).exists(), message=worker.output)
            task.cancel(actor="somebody", running=True)
            later = make("resize", {"image": 1})
            wait_until(lambda: Task.objects.get(pk=later.pk).state == "completed", message=worker.output)
            assert worker.stop() == 0
        task.refresh_from_db()
        assert (task.state, task.result) == ("canceled", None)

    def test_a_second_worker_takes_over_when_the_first_dies(self, worker_process: Any) -> None:
        task = make("wait")
        with worker_process(
            "tasks.Task",
            STATOR_LEASE="2",
            STATOR_REAP_INTERVAL="0.5",
            STATOR_POLL_INTERVAL="0.2",
            STATOR_SHUTDOWN_TIMEOUT="1",
        ) as first:
            wait_until(lambda: Task.objects.filter(state_claim__isnull=False).exists(), message=first.output)
            first.kill(signal.SIGKILL)
        Task.objects.update(action="echo")
        with worker_process(
            "tasks.Task",
            STATOR_LEASE="2",
            STATOR_REAP_INTERVAL="0.5",
            STATOR_POLL_INTERVAL="0.2",
            STATOR_SHUTDOWN_TIMEOUT="1",
        ) as second:
            wait_until(lambda: Task.objects.get(pk=task.pk).state == "completed", message=second.output)
        task.refresh_from_db()
        assert task.result == []


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "actions.rst").read_text()
    names = {"Queue": Queue, "Task": Task, "drain": drain}
    run_examples(doctest.DocTestParser().get_doctest(text, names, "actions.rst", None, 0))
