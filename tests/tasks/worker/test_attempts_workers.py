"""Actions in real workers."""

import doctest
from pathlib import Path
from typing import Any

import pytest

from stator.testing import drain
from tasks.models import Queue, Run, Task
from tests.processes import wait_until
from tests.stator.test_testing import run_examples
from tests.tasks.actions.making import make

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
class TestWorker:
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

    @pytest.mark.parametrize("action", ["doze", "nap"])
    def test_shorter_timeout_ends_what_runs(self, worker_process: Any, tmp_path: Path, action: str) -> None:
        task = make(action, {"path": str(tmp_path / "begun"), "seconds": 60}, max_attempts=1, heartbeat_interval=0.3)
        with worker_process("tasks.Task", STATOR_LEASE="3", STATOR_SHUTDOWN_TIMEOUT="2") as worker:
            wait_until((tmp_path / "begun").exists, message=worker.output)
            task.change(timeout=0.1)
            wait_until(lambda: Task.objects.get().state == "errored", message=worker.output)
            assert worker.stop() == 0
        run = Run.objects.get()
        assert (run.outcome, "ran longer than" in run.reason) == ("failed", True)


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "actions.rst").read_text()
    names = {"Queue": Queue, "Task": Task, "drain": drain}
    run_examples(doctest.DocTestParser().get_doctest(text, names, "actions.rst", None, 0))
