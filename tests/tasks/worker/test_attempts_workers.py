"""Actions in real workers."""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from stator.claims import Claim
from stator.runner import StatorRunner
from stator.testing import drain
from tasks.models import Queue, Run, Task
from tasks.worker import attempts
from tests.processes import wait_until
from tests.stator.test_testing import run_examples
from tests.tasks.actions.making import make

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_cancel_ends_what_runs(self, worker_process: Any) -> None:
        task = make("wait")
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

    def test_shorter_timeout_ends_what_runs(self, worker_process: Any, tmp_path: Path) -> None:
        task = make("doze", {"path": str(tmp_path / "begun"), "seconds": 60}, max_attempts=1, heartbeat_interval=0.3)
        # A chore ends what has used its attempts.
        settings = {"STATOR_LEASE": "3", "STATOR_SCHEDULE_INTERVAL": "0.5", "STATOR_SHUTDOWN_TIMEOUT": "2"}
        with worker_process("tasks.Task", **settings) as worker:
            wait_until((tmp_path / "begun").exists, message=worker.output)
            task.change(timeout=0.1)
            wait_until(lambda: Task.objects.get().state == "errored", message=worker.output)
            assert worker.stop() == 0
        run = Run.objects.get()
        assert (run.outcome, "ran longer than" in run.reason) == ("failed", True)

    @pytest.mark.parametrize(
        ("action", "data"),
        [("echo", [1]), ("break", {"message": "no"}), ("unstorable", None), ("flaky", {"times": 100})],
    )
    def test_attempt_that_a_thread_makes_ends_as_one_of_the_loop(
        self, monkeypatch: pytest.MonkeyPatch, action: str, data: Any
    ) -> None:
        tasks = [make(action, data) for _ in range(2)]
        made, usual = [], attempts._attempt_in_thread

        def note(claim: Claim) -> attempts.TaskAttempt | None:
            if found := usual(claim):
                made.append(claim.pk)
            return found

        monkeypatch.setattr(attempts, "_attempt_in_thread", note)
        # One after the other: what an action needs is known once a task of it was attempted.
        StatorRunner([Task], until_idle=True, heed_signals=False, concurrency=1).run()
        assert made == [tasks[1].pk]
        first, second = (ended(task) for task in tasks)
        assert first == second


def ended(task: Task) -> tuple[object, ...]:
    task.refresh_from_db()
    runs = list(task.runs.values_list("outcome", "attempt", "unexpected_errors"))
    # Without numbers: how often an action was called in this process, and the task's own.
    texts = re.sub(r"\d+", "", str([task.result, *task.runs.values_list("reason", flat=True)]))
    return task.state, task.state_attempts, task.state_failures, runs, texts


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "actions.rst").read_text()
    names = {"Queue": Queue, "Task": Task, "drain": drain}
    run_examples(doctest.DocTestParser().get_doctest(text, names, "actions.rst", None, 0))
