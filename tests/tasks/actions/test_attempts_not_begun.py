"""Whatever fails before an action is called costs its task no attempt."""

import errno
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from stator import claims
from stator.graph.outcomes import Released
from stator.models import Report
from stator.testing import advance, drain
from stator.worker.executor import attempt_async
from tasks.actions.isolation import Child
from tasks.actions.isolation.__main__ import answer_to
from tasks.actions.registry import Action, Context, registry
from tasks.failures import IsolationError
from tasks.models import ActionRate, ActionSlot, Queue, Task
from tests.statements import failing
from tests.stator.making import operations_of

pytestmark = pytest.mark.django_db(transaction=True)

# The most statements of an attempt that has a limit, a rate and receivers, before its action is called. Where a
# transaction begins is one on SQLite alone.
MOST = 14


class Heard(Action):
    """What precedes it asks the database, as receivers of Django's signals may."""

    async def begin(self, context: Context) -> None:
        await Queue.objects.aexists()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the action was called."""
    found: list[bool] = []
    action = Heard(name="heard", function=lambda: found.append(True), rate="100/h", concurrency=2, max_attempts=1)
    monkeypatch.setitem(registry, "heard", {"": action})
    return found


def publish(action: str = "heard") -> Task:
    queue, _ = Queue.objects.get_or_create(name="default", defaults={"actions_elsewhere": False})
    return Task.objects.create(queue=queue, action=action, data=None, priority=1, max_attempts=1)


def claimed() -> Any:
    (claim,) = operations_of(Task).claim([Task.state_graph.pending], 1)
    return claim


def attempt(claim: Any, while_calling: Any) -> tuple[Any, list[str]]:
    with while_calling as sent:
        attempted = async_to_sync(attempt_async)([claim])
    ((_, outcome),) = attempted.ended
    assert not claim.operations.record(attempted.ended).lost
    return outcome, sent


def assert_free_of_attempts(task: Task, outcome: Any) -> None:
    task.refresh_from_db()
    assert isinstance(outcome, Released)
    assert outcome.after > 0
    assert (task.state, task.state_attempts, task.state_failures, task.state_claim) == ("pending", 0, 0, None)
    assert Report.objects.get(model_label="tasks.task").message == outcome.reason


def test_all_statements_before_the_call_are_tried(monkeypatch: pytest.MonkeyPatch, called: list[bool]) -> None:
    publish()
    _, sent = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: not called))
    assert 8 <= len(sent) <= MOST, sent
    for table in ("tasks_queue", "tasks_actionslot", "tasks_actionrate"):
        assert any(table in statement for statement in sent)


@pytest.mark.parametrize("nth", range(MOST))
def test_none_of_them_costs_an_attempt(monkeypatch: pytest.MonkeyPatch, called: list[bool], nth: int) -> None:
    task = publish()
    outcome, sent = attempt(claimed(), failing(monkeypatch, lambda number: number == nth, lambda: not called))
    if len(sent) <= nth:
        assert called
        return
    assert not called
    assert_free_of_attempts(task, outcome)
    assert outcome.reason == "the attempt did not begin: the connection was cut"
    advance(60, Task)
    drain(Task)
    task.refresh_from_db()
    assert (called, task.state) == ([True], "completed")


def test_attempt_that_its_rate_puts_off_is_handed_back_in_one_statement(
    monkeypatch: pytest.MonkeyPatch, called: list[bool]
) -> None:
    task = publish()
    monkeypatch.setattr(ActionRate, "take", lambda *args: 60.0)
    outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
    assert not called
    assert_free_of_attempts(task, outcome)
    assert outcome == Released(60.0, ":heard: has started 100/h, its limit")


def test_a_place_that_cannot_be_given_back_is_no_error_of_an_action_that_succeeded(
    monkeypatch: pytest.MonkeyPatch, called: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    task = publish()
    outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: number == 0, lambda: bool(called)))
    task.refresh_from_db()
    assert (task.state, called) == ("completed", [True])
    assert [record.msg for record in caplog.records if record.name == "tasks.actions"] == ["tasks.slot_kept"]
    # It is free all the same: its claim has ended.
    assert ActionSlot.take("default", ":heard:", 1, 7, uuid4()) == 0.0


class TestIsolated:
    def test_process_that_finds_no_database_says_that_the_action_did_not_begin(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*args: Any, **kwargs: Any) -> Any:
            raise OperationalError("the connection was cut")

        monkeypatch.setattr(claims, "find", away)
        answer = answer_to({"task": 1, "token": "0" * 32, "using": "default", "action": "heard", "queue": "default"})
        assert answer["reason"] == "the attempt did not begin: the connection was cut"
        assert 0 < answer["not_begun"] <= 2

    def test_process_whose_apps_find_no_database_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "asks_at_once.py").write_text(
            "from django.db import OperationalError\nraise OperationalError('the server is starting')\n"
        )
        (tmp_path / "hasty_settings.py").write_text("INSTALLED_APPS = ['asks_at_once']\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr("tasks.actions.isolation.settings_module", lambda: "hasty_settings")
        answer = Child({"task": 1, "token": "0" * 32, "action": "heard", "queue": "default"}, 10_000).run()
        assert answer["reason"] == "the attempt did not begin: Django could not be set up: the server is starting"
        assert answer["not_begun"] > 0

    def test_process_makes_no_file_in_place_of_a_deleted_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        gone = tmp_path / "gone.sqlite3"
        handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": gone}})
        monkeypatch.setattr("tasks.actions.isolation.__main__.connections", handler)
        answer = answer_to({"task": 1, "token": "0" * 32, "using": "default", "action": "heard", "queue": "default"})
        assert answer["reason"] == f"the attempt did not begin: database file {gone} does not exist"
        assert not gone.exists()

    def isolated(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        action = Action(name="heard", function=len, isolated=True, **options)
        monkeypatch.setitem(registry, "heard", {"": action})

    def test_its_answer_is_obeyed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.isolated(monkeypatch)
        monkeypatch.setattr(Child, "run", lambda child: {"not_begun": 1.5, "reason": "away"})
        task = publish()
        outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
        assert_free_of_attempts(task, outcome)
        assert outcome == Released(1.5, "away")

    def test_process_that_cannot_be_started_costs_no_attempt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

        self.isolated(monkeypatch)
        monkeypatch.setattr(subprocess, "Popen", refuse)
        task = publish()
        outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
        assert_free_of_attempts(task, outcome)

    def test_a_further_try_that_does_not_begin_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [
            {
                "module": "builtins",
                "name": "ValueError",
                "message": "no",
                "traceback": "",
                "fingerprint": "",
                "final": False,
            },
            {"not_begun": 1.5, "reason": "away"},
        ]
        self.isolated(monkeypatch, local_retries=1, local_delay=0.001)
        monkeypatch.setattr(Child, "run", lambda child: answers.pop(0))
        task = publish()
        attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
        task.refresh_from_db()
        assert (task.state, Report.objects.get().message) == ("errored", "away")
        assert Report.objects.get().error.endswith(IsolationError.__name__)
