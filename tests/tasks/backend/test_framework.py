"""Signals and log lines of Django's framework."""

import logging
from importlib import import_module
from traceback import format_exception
from typing import Any

import django
import pytest

from stator.testing import advance, drain
from tasks.backend import framework
from tasks.backend.framework import TaskResultStatus
from tasks.backend.tasks_backend import StatorBackend
from tasks.models import Task
from tests.tasks.backend.making import Heard, done
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestSignals:
    def test_they_tell_the_life_of_a_task(self) -> None:
        signals = (framework.task_enqueued, framework.task_started, framework.task_finished)
        with Heard(*signals) as told:
            done(examples.add.enqueue(1))
        assert [signal for signal, *_ in told] == list(signals)
        assert {sender for _, sender, *_ in told} == {StatorBackend}
        assert [status for *_, status in told] == [
            TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL,
        ]  # fmt: skip
        assert (told[1][2].attempts, told[2][2].return_value) == (1, 2)

    def test_task_finished_is_sent_once_however_many_errors_there_were(self) -> None:
        with Heard(framework.task_started, framework.task_finished) as told:
            examples.go_wrong.using(backend="retrying").enqueue("again")
            for _ in range(3):
                drain(Task)
                advance(31, Task)
        assert [signal is framework.task_finished for signal, *_ in told] == [False, False, False, True]
        assert told[-1][2].status == TaskResultStatus.FAILED
        assert len(told[-1][2].errors) == 3

    def test_a_receiver_that_raises_does_no_harm(self, caplog: pytest.LogCaptureFixture) -> None:
        def bad(**kwargs: Any) -> None:
            raise RuntimeError("receiver")

        framework.task_finished.connect(bad)
        try:
            assert done(examples.add.enqueue(1)).return_value == 2
        finally:
            framework.task_finished.disconnect(bad)
        assert "tasks.receiver_failed" in caplog.text

    def test_a_failed_task_is_logged_once_with_its_stack(self, caplog: pytest.LogCaptureFixture) -> None:
        examples.go_wrong.enqueue("no such file")
        drain(Task)
        [event] = [each for each in caplog.records if each.levelname == "ERROR"]
        assert event.getMessage() == "stator.attempt_failed"
        assert event.exc_info is not None
        assert str(event.exc_info[1]) == "no such file"
        assert ", in go_wrong\n" in "".join(format_exception(event.exc_info[1]))

    @pytest.mark.parametrize("own", ["handler", "level"])
    def test_the_log_of_the_framework_has_the_error_where_the_log_of_workers_has_it_not(
        self, own: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard = list[logging.LogRecord]()
        handler = logging.Handler()
        monkeypatch.setattr(handler, "emit", heard.append)
        logger = framework.signals.logger
        monkeypatch.setattr(logger, "handlers", [handler])
        if own == "level":
            monkeypatch.setattr(logging.getLogger("stator.worker"), "handlers", [handler])
            caplog.set_level("CRITICAL", "stator.worker")
        examples.go_wrong.enqueue("no such file")
        drain(Task)
        [event] = [each for each in heard if each.name == logger.name and each.levelname == "ERROR"]
        assert event.getMessage().startswith("Task id=")
        assert event.exc_info is not None
        assert str(event.exc_info[1]) == "no such file"

    @pytest.mark.django_db(transaction=True)
    def test_task_finished_is_sent_for_a_canceled_task(self) -> None:
        with Heard(framework.task_finished) as told:
            task_of(examples.add.enqueue(1)).cancel()
        assert [status for *_, status in told] == [TaskResultStatus.FAILED]


@pytest.mark.skipif(django.VERSION < (6, 0), reason="django.tasks does not exist")
def test_project_that_uses_the_package_beside_django_hears_its_signals_and_catches_its_errors() -> None:
    package, signals = import_module("django_tasks"), import_module("django_tasks.signals")
    missing = import_module("django_tasks.exceptions").TaskResultDoesNotExist
    with Heard(signals.task_enqueued, signals.task_started, signals.task_finished) as told:
        done(examples.add.enqueue(1))
        done(examples.go_wrong.enqueue("wrong"))
    assert [status for *_, status in told] == ["READY", "RUNNING", "SUCCESSFUL", "READY", "RUNNING", "FAILED"]
    for kind in (missing, framework.TaskResultDoesNotExist):
        with pytest.raises(kind):
            package.task_backends["default"].get_result("1")
