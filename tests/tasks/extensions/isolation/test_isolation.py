"""Actions in processes of their own: what comes back, and that nothing is left behind."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import override_settings

from stator.extensions.isolation.process import IsolatedProcess
from stator.extensions.isolation.surroundings import Surroundings
from stator.testing import drain
from tasks.extensions.isolation.calls import answer_of, process_for_action
from tasks.extensions.isolation.isolated import answer_to
from tasks.failures import IsolationError
from tasks.models import Run, Task
from tests.processes import wait_until
from tests.tasks.actions.making import report
from tests.tasks.extensions.isolation.making import make, ran

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("databases_of_the_test")]


def running(source: str, limit: int) -> IsolatedProcess:
    """Return a process that runs this source instead of an action."""
    process = process_for_action(limit)
    process._command = (sys.executable, "-c", source)
    return process


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids(path: Path) -> list[int]:
    """Return the ids of the process and of its child, once both have started."""
    return wait_until(lambda: path.exists() and [int(pid) for pid in path.read_text().split()])


class TestAnswers:
    def test_it_runs_in_another_process_and_holds_the_claim_there(self) -> None:
        task = ran()
        assert (task.state, task.result.pop("pid") == os.getpid()) == ("completed", False)
        worker = Run.objects.get().worker
        assert task.result == {"attempt": 1, "mine": True, "task": task.pk, "worker": worker}

    def test_an_error_comes_back_as_what_it_was_and_the_process_itself_marks_that_the_last_attempt_begins(self) -> None:
        task = ran("raise", max_attempts=1)
        assert task.begun == Run.objects.get().token
        assert (task.state, report(task).error, report(task).message) == (
            "errored", "tests.testapp.actions.Odd", "from afar",
        )  # fmt: skip
        header, first, *_, end = report(task).traceback.splitlines()
        assert (header, end) == ("Traceback (most recent call last):", "tests.testapp.actions.Odd: from afar")
        assert "/tests/testapp/isolated.py" in first

    @override_settings(LOGIN_URL="/nowhere/")
    def test_each_ends_as_it_would_here_with_the_settings_of_the_process_that_started_it(self) -> None:
        made = [
            make("release"), make(action="alone-settings", data={"names": ["LOGIN_URL", "ROOT_URLCONF"]}),
            make(action="alone-async", data={"name": "written"}),
        ]  # fmt: skip
        drain(Task)
        released, of_settings, written = (Task.objects.get(pk=task.pk) for task in made)
        run = released.runs.earliest("pk")
        assert (released.state, run.outcome, run.reason) == ("pending", "released", "not here")
        assert of_settings.result == ["/nowhere/", settings.ROOT_URLCONF]
        assert written.result == Group.objects.get().name == "written"

    def test_it_may_print_read_and_fork(self) -> None:
        made = [make("print"), make(action="child", data=None), make(action="alone-reads", data=None)]
        drain(Task)
        ended = [Task.objects.get(pk=task.pk) for task in made]
        assert [task.state for task in ended] == ["completed"] * 3
        assert ended[-1].result == ["", "EOFError", ""]

    def test_an_action_that_is_gone_is_an_error_with_its_name(self) -> None:
        task = make()
        around = Surroundings.here("default").as_request()
        request = {"task": task.pk, "token": "0" * 32, "action": "alone", "queue": "default", **around}
        assert answer_to(request, print)["name"] == "LeaseLost"


class TestCrashes:
    def test_the_end_of_the_process_is_an_error_of_this_task_alone(self) -> None:
        crashed, other = make("crash"), make()
        drain(Task)
        crashed.refresh_from_db()
        assert (crashed.state, report(crashed).error) == ("pending", "tasks.failures.IsolationError")
        assert report(crashed).message.startswith("the process ended without an answer: signal SIGSEGV")
        other.refresh_from_db()
        assert other.state == "completed"

    def test_it_is_told_how_it_ended_and_what_it_said_even_if_what_it_has_started_goes_on(self) -> None:
        source = (
            "import os\nos.write(2, b'no memory')\nif not os.fork(): os.execlp('sleep', 'sleep', '60')\nos._exit(3)"
        )
        with pytest.raises(IsolationError, match=r"(?s)without an answer: exit code 3.*no memory"):
            answer_of(running(source, 100), {})

    def test_a_process_that_writes_without_end_is_ended(self) -> None:
        flood = "import os, sys\nwhile True: os.write(int(sys.argv[4]), b'x' * 65536)"
        with pytest.raises(IsolationError, match="longer than 100000 bytes"):
            answer_of(running(flood, 100_000), {})


class TestEndings:
    def test_its_time_limit_ends_it_and_what_it_has_started(self, tmp_path: Path) -> None:
        path = tmp_path / "pids"
        # The limit counts from the start of the process, which takes its time on a crowded machine.
        for timeout in (3, 6, 12, 24, 48):
            task = make("hang", data={"do": "hang", "path": str(path)}, timeout=timeout)
            drain(Task)
            task.refresh_from_db()
            assert (task.state, report(task).error) == ("pending", "stator.exceptions.AttemptTimedOut")
            if path.exists() and path.read_text():
                break
            task.delete()
        wait_until(lambda: not any(is_running(pid) for pid in pids(path)))

    def test_ended_before_it_began_it_does_not_begin(self) -> None:
        process = process_for_action(100)
        process.kill()
        with pytest.raises(IsolationError, match="ended before it began"):
            answer_of(process, {})

    @pytest.mark.parametrize("how", ["stop", "die"])
    def test_it_ends_with_its_worker(self, worker_process: Any, tmp_path: Path, how: str) -> None:
        path = tmp_path / "pids"
        task = make("hang", data={"do": "hang", "path": str(path)})
        with worker_process("tasks.Task", STATOR_SHUTDOWN_TIMEOUT="3") as worker:
            found = pids(path)
            assert all(is_running(pid) for pid in found)
            if how == "stop":
                assert worker.stop() == 0, worker.output()
            else:
                worker.send(signal.SIGKILL)
            wait_until(lambda: not any(is_running(pid) for pid in found), message=worker.output)
        task.refresh_from_db()
        # The attempt had begun, so it stays counted.
        assert (task.state, task.state_attempts) == ("pending", 1)

    def test_signal_to_all_processes_lets_it_finish(self, worker_process: Any, tmp_path: Path) -> None:
        """As systemd sends it unless told otherwise, to every process of the unit."""
        path = tmp_path / "pids"
        task = make(data={"do": "wait", "path": str(path)})
        with worker_process("tasks.Task", "--json-logs") as worker:
            pids(path)
            for process in [
                *psutil.Process(worker.pid).children(recursive=True),
                psutil.Process(worker.pid),
            ]:
                process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stator.stopping" in worker.output(), message=worker.output)
            Path(f"{path}.go").touch()
            assert worker.wait() == 0, worker.output()
        task.refresh_from_db()
        assert (task.state, task.state_failures) == ("completed", 0)

    def test_what_holds_the_interpreter_ends_with_the_worker_too(self, worker_process: Any, tmp_path: Path) -> None:
        path = tmp_path / "pids"
        make(data={"do": "hold", "path": str(path)})
        with worker_process("tasks.Task") as worker:
            found = pids(path)
            worker.send(signal.SIGKILL)
            wait_until(lambda: not is_running(found[0]), message=worker.output)
