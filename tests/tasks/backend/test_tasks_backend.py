"""The backend for Django's Tasks framework: its public contract, on Django 6 and with ``django-tasks`` before."""

import doctest
import threading
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from stator.graph.backoff import Backoff
from stator.testing import advance, drain
from tasks.backend import framework
from tasks.backend.framework import TaskResultDoesNotExist, TaskResultStatus, task_backends
from tasks.backend.priorities import django_priority, priority_of
from tasks.backend.results import number_of
from tasks.backend.tasks_backend import Options, StatorBackend
from tasks.models import Queue, Task
from tests.processes import environment_for_subprocess
from tests.stator.test_testing import run_examples
from tests.tasks.backend.making import Heard, backend, done
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestRunning:
    def test_a_task_runs_and_its_value_is_its_result(self) -> None:
        result = done(examples.add.enqueue(2, right=3))
        assert (result.status, result.return_value, result.is_finished) == (TaskResultStatus.SUCCESSFUL, 5, True)
        assert result.enqueued_at <= result.finished_at
        assert result.started_at <= result.last_attempted_at <= result.finished_at
        assert (result.attempts, result.errors) == (1, [])
        assert len(result.worker_ids[0]) == 12
        assert examples.calls == [(2, 3)]

    def test_coroutine_functions_are_tasks_too(self) -> None:
        assert done(examples.greet.enqueue("you")).return_value == "hello you"

    def test_the_context_comes_first_where_it_is_taken(self) -> None:
        result = done(examples.describe.enqueue("note"))
        assert result.return_value == {
            "id": result.id, "attempt": 1, "status": "RUNNING", "note": "note", "args": ["note"],
        }  # fmt: skip
        assert done(examples.adescribe.enqueue()).return_value == 1

    def test_an_error_is_final_and_kept(self) -> None:
        result = done(examples.go_wrong.enqueue("so it is"))
        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 1)
        [error] = result.errors
        assert (error.exception_class_path, error.exception_class) == ("builtins.ValueError", ValueError)
        header, first, *_, last = error.traceback.splitlines()
        assert (header, last) == ("Traceback (most recent call last):", "ValueError: so it is")
        assert first.endswith("in go_wrong")
        with pytest.raises(ValueError, match="failed"):
            _ = result.return_value
        advance(86400, Task)
        drain(Task)
        assert examples.calls == ["wrong"]

    def test_with_max_attempts_it_is_tried_again(self) -> None:
        result = done(examples.second_time.enqueue())
        assert (result.status, result.attempts, result.finished_at) == (TaskResultStatus.READY, 1, None)
        assert [error.exception_class for error in result.errors] == [LookupError]
        advance(31, Task)
        result = done(result)
        assert (result.return_value, result.attempts, len(result.errors)) == ("done", 2, 1)
        assert result.started_at <= result.last_attempted_at <= result.finished_at

    def test_and_fails_after_the_last(self) -> None:
        result = examples.go_wrong.using(backend="retrying").enqueue("again")
        for _ in range(3):
            drain(Task)
            advance(31, Task)
        result.refresh()
        assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 3, 3)
        assert {error.exception_class for error in result.errors} == {ValueError}
        assert "in go_wrong" in result.errors[-1].traceback

    def test_a_value_that_is_no_json_is_an_error(self) -> None:
        result = done(examples.bad_result.enqueue())
        assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, TypeError)

    def test_a_canceled_task_has_failed(self) -> None:
        result = examples.add.enqueue(1)
        task_of(result).cancel()
        result.refresh()
        assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)

    def test_it_does_not_run_before_its_time(self) -> None:
        when = timezone.now() + timedelta(hours=1)
        result = examples.add.using(run_after=when).enqueue(1)
        assert (drain(Task), result.task.run_after) == (0, when)
        assert examples.add.get_result(result.id).task.run_after == when
        advance(3601, Task)
        assert done(result).return_value == 2

    def test_options_are_kept_on_the_row(self) -> None:
        with backend(OPTIONS={"max_attempts": 7, "timeout": 12.5, "retention": 60}):
            made = task_of(examples.add.enqueue(1))
        assert (made.max_attempts, made.timeout, made.retention) == (7, 12.5, 60)


class TestPriority:
    @pytest.mark.parametrize("priority", [-100, -1, 0, 1, 50, 100])
    def test_priorities_are_converted_there_and_back(self, priority: int) -> None:
        assert django_priority(priority_of(priority)) == priority

    def test_larger_is_sooner_whatever_the_moment_and_an_ordinary_task_is_in_the_middle(self) -> None:
        from time import time

        converted = [priority_of(priority) for priority in (100, 1, 0, -1, -100)]
        assert converted == sorted(converted)
        assert converted[2] == pytest.approx(time() * 1000, abs=60_000)
        assert all(abs(value) < 2**63 for value in converted)

    def test_the_row_has_it_and_the_result_too(self) -> None:
        low, high = examples.send.using(priority=-5).enqueue("low"), examples.send.enqueue("high")
        assert [made.pk for made in Task.objects.order_by("priority")] == [number_of(high), number_of(low)]
        assert [examples.send.get_result(result.id).task.priority for result in (low, high)] == [-5, 10]


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

    def test_the_end_is_told_once_however_many_errors_there_were(self) -> None:
        with Heard(framework.task_started, framework.task_finished) as told:
            examples.go_wrong.using(backend="retrying").enqueue("again")
            for _ in range(3):
                drain(Task)
                advance(31, Task)
        assert [signal is framework.task_finished for signal, *_ in told] == [False, False, False, True]
        assert told[-1][2].status == TaskResultStatus.FAILED
        assert len(told[-1][2].errors) == 3

    def test_many_ends_are_told_in_few_statements(self) -> None:
        from django.test.utils import CaptureQueriesContext

        from stator.signals import Move
        from tasks.backend.tasks_backend import tell_finished

        made = [task_of(examples.add.enqueue(number)) for number in range(20)]
        drain(Task)
        with CaptureQueriesContext(connection) as queries, Heard(framework.task_finished) as told:
            tell_finished(Task, [Move(task.pk, "pending", "completed") for task in made], "default")
        assert (len(told), len(queries)) == (20, 2)

    def test_a_receiver_that_raises_does_no_harm(self, caplog: pytest.LogCaptureFixture) -> None:
        def bad(**kwargs: Any) -> None:
            raise RuntimeError("receiver")

        framework.task_finished.connect(bad)
        try:
            assert done(examples.add.enqueue(1)).return_value == 2
        finally:
            framework.task_finished.disconnect(bad)
        assert "tasks.receiver_failed" in caplog.text

    def test_a_failed_task_is_logged_with_its_stack(self, caplog: pytest.LogCaptureFixture) -> None:
        examples.go_wrong.enqueue("no such file")
        drain(Task)
        names = {"stator.worker": "stator.attempt_failed", framework.signals.logger.name: "Task id="}
        for name, message in names.items():
            [event] = [each for each in caplog.records if each.name == name and each.levelname == "ERROR"]
            assert event.getMessage().startswith(message)
            assert event.exc_info is not None
            assert str(event.exc_info[1]) == "no such file"
            told = "".join(format_exception(event.exc_info[1]))
            assert ", in go_wrong\n" in told

    def test_a_task_that_succeeds_is_logged_without_a_stack(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", framework.signals.logger.name):
            done(examples.add.enqueue(1))
        assert not [each for each in caplog.records if each.name == framework.signals.logger.name and each.exc_info]

    @pytest.mark.django_db(transaction=True)
    def test_the_end_of_a_task_that_is_canceled_is_told_too(self) -> None:
        with Heard(framework.task_finished) as told:
            task_of(examples.add.enqueue(1)).cancel()
        assert [status for *_, status in told] == [TaskResultStatus.FAILED]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"max_attempt": 3}, "'max_attempt' is not an option; did you mean max_attempts?"),
            ({"max_attempts": 0}, "max_attempts=0 must be a whole number of at least 1"),
            ({"timeout": "1"}, "timeout='1' must be a number of seconds above 0"),
            ({"modules": "os"}, "modules='os' must be a list of module names"),
            ({"rate": "fast"}, "rate='fast' must be a number of starts and a time"),
            ({"rate": 5}, "rate=5 must be a number of starts and a time"),
            ({"retention": -1}, "retention=-1 must be a number of seconds from 0 to 3153600000"),
            ({"retention": float("nan")}, "retention=nan must be a number of seconds from 0 to 3153600000"),
            ({"retention": "7 days"}, "retention='7 days' must be a number of seconds from 0 to 3153600000"),
            ({"retention": timedelta(days=7)}, "must be a number of seconds; write 604800"),
            ({"timeout": timedelta(minutes=1)}, "must be a number of seconds; write 60"),
            ({"timeout": 1e12}, "timeout=1000000000000.0 must be at most 3153600000 seconds"),
            ({"backoff": "x"}, "backoff='x' must be a number of seconds, a function of the number of errors, or"),
            ({"backoff": -1}, "backoff=-1 must be a number of seconds"),
            ({"isolated": "yes"}, "isolated='yes' must be True or False"),
            ({"max_attempts": 10**12}, "max_attempts=1000000000000 must be at most 1000000"),
            ({"concurrency": 10**12}, "concurrency=1000000000000 must be at most 1000000"),
            ({"local_retries": 10**12}, "local_retries=1000000000000 must be at most 1000000"),
            ({"local_delay": 1e300}, "local_delay=1e+300 must be at most 3153600000 seconds"),
            (None, "OPTIONS=None must be a dictionary"),
            (["max_attempts"], "OPTIONS=['max_attempts'] must be a dictionary"),
        ],
    )
    def test_bad_ones_are_refused_by_the_check_and_by_enqueueing(self, options: dict[str, Any], told: str) -> None:
        with backend(OPTIONS=options):
            [error] = task_backends["default"].check()
            assert (error.id, told in error.msg) == ("tasks.E202", True), error.msg
            with pytest.raises(ImproperlyConfigured) as caught:
                examples.add.enqueue(1)
            assert told in str(caught.value)
            assert "\n" not in str(caught.value)
        assert not Task.objects.exists()

    @pytest.mark.parametrize(
        "options",
        [
            {"retention": 0},
            {"retention": 0.5, "timeout": 60, "isolated": False},
            {"backoff": 30}, {"backoff": 0}, {"backoff": Backoff(base=2.0)}, {"backoff": float},
            {"max_attempts": 1_000_000, "concurrency": 1, "local_retries": 0, "local_delay": 0.1},
        ],
    )  # fmt: skip
    def test_values_that_work_are_taken(self, options: dict[str, Any]) -> None:
        with backend(OPTIONS=options):
            assert task_backends["default"].check() == []
            examples.add.enqueue(1)

    @pytest.mark.parametrize("name", ["a" * 101, "nul\0", "half\ud800", ""])
    def test_a_queue_in_queues_that_cannot_be_is_told_by_the_check(self, name: str) -> None:
        with backend(QUEUES=["default", name]):
            [error] = task_backends["default"].check()
            assert error.id == "tasks.E202"
            assert "QUEUES" in error.msg

    def test_good_ones_have_nothing_to_tell(self) -> None:
        assert [
            problem for alias in ("default", "retrying", "isolated") for problem in task_backends[alias].check()
        ] == []


@pytest.mark.django_db(transaction=True)
class TestWorkers:
    def test_a_worker_runs_them(self, worker_process: Any) -> None:
        results = [examples.add.enqueue(number) for number in range(10)]
        results += [examples.greet.enqueue("you"), examples.go_wrong.enqueue("no")]
        with worker_process("tasks.Task", "--until-idle") as worker:
            assert worker.wait() == 0, worker.output()
        for result in results:
            result.refresh()
        assert [result.return_value for result in results[:11]] == [*range(1, 11), "hello you"], worker.output()
        assert results[11].status == TaskResultStatus.FAILED

    def test_nothing_runs_that_was_rolled_back(self, worker_process: Any) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            examples.make_group.enqueue("never")
            raise RuntimeError
        examples.make_group.enqueue("kept")
        with worker_process("tasks.Task", "--until-idle") as worker:
            assert worker.wait() == 0, worker.output()
        assert [group.name for group in Group.objects.all()] == ["kept"]

    def test_an_isolated_backend_runs_them_in_processes_of_their_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in environment_for_subprocess().items():
            monkeypatch.setenv(name, value)
        import os

        assert done(examples.process_id.enqueue()).return_value != os.getpid()

    def test_a_queue_is_made_once_however_many_need_it(self) -> None:
        barrier = threading.Barrier(4)

        def enqueue() -> None:
            barrier.wait()
            examples.add.enqueue(1)
            connection.close()

        threads = [threading.Thread(target=enqueue) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (Queue.objects.count(), Task.objects.count()) == (1, 4)
        assert Task.objects.filter(created__lte=Now()).count() == 4


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "django-tasks.rst").read_text()
    # A traceback names the module of its error.
    text = text.replace("\nTaskResultDoesNotExist:", f"\n{TaskResultDoesNotExist.__module__}.TaskResultDoesNotExist:")
    names = {
        "Task": Task,
        "drain": drain,
        "transaction": transaction,
        "add": examples.add,
        "go_wrong": examples.go_wrong,
    }
    run_examples(doctest.DocTestParser().get_doctest(text, names, "django-tasks.rst", None, 0))


def test_every_option_is_in_the_guide() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "django-tasks.rst").read_text()
    assert [option.name for option in fields(Options) if f"``{option.name}``" not in text] == []
