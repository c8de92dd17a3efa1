"""The backend for Django's Tasks framework: its public contract, on Django 6 and with ``django-tasks`` before."""

import doctest
import logging
import sys
import threading
from dataclasses import fields
from datetime import datetime, timedelta
from datetime import timezone as dt_timezone
from importlib import import_module
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.dispatch import Signal
from django.test import override_settings
from django.utils import timezone

from stator.graph.backoff import Backoff
from stator.models import Report
from stator.signals import became_ready
from stator.testing import advance, drain
from tasks.backend import enqueueing, framework
from tasks.backend.framework import TaskException, TaskResultDoesNotExist, TaskResultStatus, task_backends
from tasks.backend.priorities import django_priority, priority_of
from tasks.backend.results import number_of
from tasks.backend.tasks_backend import Options, StatorBackend, resolve
from tasks.exceptions import PublishRefused, QueuePaused
from tasks.failures import NoHandler
from tasks.models import Queue, Task
from tests.processes import environment_for_subprocess
from tests.stator.test_testing import run_examples
from tests.tasks.making import NAMES_THAT_NO_DATABASE_KEEPS, task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db

BACKEND = "tasks.backend.StatorBackend"


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    examples.calls.clear()


def done(result: Any) -> Any:
    drain(Task)
    result.refresh()
    return result


class Heard:
    """What a signal tells while the context is open."""

    def __init__(self, *signals: Signal) -> None:
        self.signals = signals
        self.told: list[tuple[Any, Any, Any, Any]] = []

    def __enter__(self) -> list[tuple[Any, Any, Any, Any]]:
        for signal in self.signals:
            signal.connect(self._hear)
        return self.told

    def __exit__(self, *error: object) -> None:
        for signal in self.signals:
            signal.disconnect(self._hear)

    def _hear(self, sender: Any, task_result: Any, signal: Signal, **kwargs: Any) -> None:
        self.told.append((signal, sender, task_result, task_result.status))


class TestEnqueueing:
    def test_it_supports_all_there_is(self) -> None:
        backend = task_backends["default"]
        assert isinstance(backend, StatorBackend)
        for what in ("defer", "async_task", "get_result", "priority"):
            assert getattr(backend, f"supports_{what}") is True

    def test_a_task_is_ready_once_it_is_enqueued(self) -> None:
        before = timezone.now()
        result = examples.add.enqueue(1, right=2)
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"right": 2})
        assert (result.backend, result.attempts, result.worker_ids, result.errors) == ("default", 0, [], [])
        assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
        assert abs((result.enqueued_at - before).total_seconds()) < 60
        assert result.task == examples.add
        assert not result.is_finished
        assert isinstance(result.id, str)
        assert 0 < len(result.id) <= 64
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        assert examples.calls == []

    def test_one_statement_inserts_it(self, django_assert_num_queries: Any) -> None:
        examples.add.enqueue(1)
        # Elsewhere than on PostgreSQL another one looks for the queue.
        with transaction.atomic(), django_assert_num_queries(1 if connection.vendor == "postgresql" else 2):
            examples.add.enqueue(2)

    @pytest.mark.django_db(transaction=True)
    def test_row_is_the_same_however_often_its_statement_was_sent(self) -> None:
        results = [examples.add.using(priority=3).enqueue("\u00fc", right=[number, None]) for number in range(15)]
        assert [task_of(result).data["kwargs"]["right"] for result in results] == [[n, None] for n in range(15)]
        own = ("id", "created", "notice_due", "state_changed", "data", "priority")
        made = [{name: value for name, value in values.items() if name not in own} for values in Task.objects.values()]
        assert made == made[:1] * 15
        assert all(task_of(result).created == result.enqueued_at for result in results)

    def test_the_row_is_as_the_model_makes_it(self) -> None:
        first = timezone.now() + timedelta(hours=1)
        with backend(OPTIONS={"max_attempts": 7, "timeout": 12.5, "retention": 60}):
            # The first makes the queue, and is inserted by the ORM.
            for run_after in (None, first):
                examples.add.using(run_after=run_after, priority=3).enqueue("\u00fc", right=[1.5, None])
                examples.add.using(run_after=run_after, priority=3).enqueue("\u00fc", right=[1.5, None])
        queue = Queue.objects.get()
        own = ("id", "created", "notice_due", "state_changed")
        made = [{name: value for name, value in values.items() if name not in own} for values in Task.objects.values()]
        priorities = [each.pop("priority") for each in made]
        assert len({each["data"].pop("nonce") for each in made}) == 4
        assert priorities[1] - priorities[0] < 60_000
        assert priorities[2] == priorities[3] > priorities[1] + 3_500_000
        assert made[:1] * 2 + made[2:3] * 2 == made
        assert (made[0]["state_ready"], made[0]["state_next_attempt"]) == (True, None)
        assert (made[2]["state_ready"], made[2]["state_next_attempt"]) == (False, first)
        rest = Task(queue=queue, action="django:tests.testapp.tasks.add", max_attempts=7, timeout=12.5, retention=60)
        rest.data = {"args": ["\u00fc"], "kwargs": {"right": [1.5, None]}, "backend": "default"}
        Task.objects.bulk_create([rest])
        wanted = Task.objects.values(*made[0]).get(pk=rest.pk)
        assert made[0] == wanted
        assert not Task.objects.exclude(created__lte=Now(), notice_due__lte=Now(), state_changed__lte=Now()).exists()

    def test_queues_are_made_when_they_are_needed(self) -> None:
        examples.send.enqueue("you")
        examples.send.enqueue("me")
        assert [queue.name for queue in Queue.objects.all()] == ["mail"]

    def test_it_is_part_of_the_transaction(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            examples.add.enqueue(1)
            raise RuntimeError
        assert not Task.objects.exists()

    def test_async_code_may_enqueue_and_ask(self) -> None:
        @async_to_sync
        async def go() -> Any:
            result = await examples.greet.aenqueue("you")
            again = await examples.greet.aget_result(result.id)
            await again.arefresh()
            return again

        again = go()
        drain(Task)
        async_to_sync(again.arefresh)()
        assert again.return_value == "hello you"

    @pytest.mark.parametrize("argument", [object(), {1, 2}, datetime.now, b"\xff", [object()]])
    def test_arguments_must_be_json(self, argument: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="Unsupported"):
            examples.add.enqueue(argument)
        assert not Task.objects.exists()

    @pytest.mark.parametrize("argument", [float("nan"), "a\0b", "\ud800"])
    def test_and_storable(self, argument: Any) -> None:
        with pytest.raises(PublishRefused, match="the arguments"):
            examples.add.enqueue(argument)
        assert not Task.objects.exists()

    @override_settings(STATOR_TASKS={"PAYLOAD_LIMIT": 100})
    def test_and_of_bounded_length(self) -> None:
        with pytest.raises(PublishRefused, match="the arguments has"):
            examples.add.enqueue("x" * 100)

    def test_tuples_come_as_lists(self) -> None:
        result = examples.add.enqueue((1, 2), right=(3,))
        assert (result.args, result.kwargs) == ([[1, 2]], {"right": [3]})
        assert done(result).return_value == [1, 2, 3]

    def test_a_paused_queue_takes_nothing(self) -> None:
        Queue.objects.create(name="default", publish_paused=True)
        with pytest.raises(QueuePaused):
            examples.add.enqueue(1)
        with pytest.raises(QueuePaused):
            enqueue_many([((1,), {}), ((2,), {})])
        assert not Task.objects.exists()

    def test_it_takes_them_from_the_moment_on_that_the_pause_ends_and_none_once_it_is_paused(self) -> None:
        examples.add.enqueue(1)
        queue = Queue.objects.get()
        for seconds, paused in ((-5, False), (3600, True)):
            QuerySet(Queue).update(publish_paused=True, pause_until=timezone.now() + timedelta(seconds=seconds))
            if paused:
                with pytest.raises(QueuePaused):
                    examples.add.enqueue(2)
            else:
                examples.add.enqueue(2)
        queue.resume()
        examples.add.enqueue(3)
        queue.pause(claim=True)
        examples.add.enqueue(4)
        assert Task.objects.count() == 4

    @pytest.mark.parametrize("own", [60.0, None])
    def test_they_are_invisible_for_as_long_as_the_queue_has_it(self, settings: Any, own: float | None) -> None:
        settings.STATOR_TASKS = {"INVISIBLE_FOR": 3600.0 if own else 60.0}
        Queue.objects.create(name="default", invisible_for=own)
        first, second = examples.add.enqueue(1), *enqueue_many([((2,), {})])
        soon = examples.add.using(run_after=timezone.now() + timedelta(seconds=10)).enqueue(3)
        assert {task_of(each).status for each in (first, second, soon)} == {"invisible"}
        advance(11, Task)
        assert drain(Task) == 1
        advance(40, Task)
        assert drain(Task) == 0
        advance(11, Task)
        assert drain(Task) == 2

    def test_a_queue_may_have_them_visible_at_once_whatever_the_setting(self, settings: Any) -> None:
        settings.STATOR_TASKS = {"INVISIBLE_FOR": 60.0}
        Queue.objects.create(name="default", invisible_for=0.0)
        examples.add.enqueue(1)
        assert drain(Task) == 1

    def test_an_exclusive_queue_takes_none(self) -> None:
        Queue.objects.create(name="default", kind=Queue.Kind.EXCLUSIVE, exclusive_key="title")
        with pytest.raises(PublishRefused, match="default is exclusive by 'title'"):
            examples.add.enqueue(1)
        with pytest.raises(PublishRefused):
            enqueue_many([((1,), {}), ((2,), {})])
        assert not Task.objects.exists()

    def test_a_queue_that_was_deleted_is_made_anew(self) -> None:
        examples.add.enqueue(1)
        Queue.objects.all().delete()
        examples.add.enqueue(2)
        assert (Queue.objects.count(), Task.objects.count()) == (1, 1)

    @pytest.mark.parametrize(
        "wrong", [{"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"queue_name": "none"}]
    )
    def test_what_the_framework_forbids_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(TaskException):
            examples.add.using(**wrong)

    def test_run_after_must_be_aware(self) -> None:
        with pytest.raises(TaskException, match="aware"):
            examples.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001

    def test_run_after_must_be_a_moment_that_can_be_read(self) -> None:
        far = datetime.max.replace(tzinfo=dt_timezone(timedelta(hours=-5)))
        with pytest.raises(PublishRefused, match=r"run_after=9999.* between the years 1970 and 9000"):
            examples.add.using(run_after=far).enqueue(1)
        assert not Task.objects.exists()


def enqueue_many(calls: Any, task: Any = examples.add) -> Any:
    return task_backends[task.backend].enqueue_many(task, calls)  # type: ignore[attr-defined]


class TestEnqueueingMany:
    def test_the_results_are_in_order_and_each_is_of_its_row(self) -> None:
        examples.add.enqueue(0)
        results = enqueue_many(((number,), {"right": number}) for number in range(1, 1203))
        assert [result.args for result in results] == [[number] for number in range(1, 1203)]
        data = dict(Task.objects.values_list("pk", "data"))
        assert [data[number_of(result)]["args"] for result in results] == [result.args for result in results]
        assert [data[number_of(result)]["kwargs"] for result in results] == [result.kwargs for result in results]
        assert {result.status for result in results} == {TaskResultStatus.READY}
        assert [number_of(result) for result in results] == sorted(number_of(result) for result in results)
        assert all(isinstance(result.enqueued_at, datetime) for result in results)

    def test_they_run_in_that_order(self) -> None:
        enqueue_many([((number,), {}) for number in range(20)])
        drain(Task)
        assert examples.calls == [(number, 1) for number in range(20)]

    def test_a_few_statements_insert_many(self, django_assert_num_queries: Any) -> None:
        examples.add.enqueue(0)
        with transaction.atomic(), django_assert_num_queries(1 if connection.vendor == "postgresql" else 2):
            enqueue_many([((number,), {}) for number in range(20)])

    def test_time_and_priority_are_those_of_the_task(self) -> None:
        first = timezone.now() + timedelta(hours=1)
        results = enqueue_many([((1,), {}), ((2,), {})], examples.add.using(run_after=first, priority=-7))
        for each in map(task_of, results):
            assert (each.state_ready, each.state_next_attempt) == (False, first)
            assert django_priority(each.priority) == -7
        assert drain(Task) == 0
        advance(3601, Task)
        assert drain(Task) == 2
        results[1].refresh()
        assert (results[1].return_value, results[1].task.run_after) == (3, first)

    @pytest.mark.parametrize("wrong", [object(), float("nan"), "a\0b"])
    def test_one_that_is_refused_has_none_enqueued(self, wrong: Any) -> None:
        with Heard(framework.task_enqueued) as told, pytest.raises((TypeError, PublishRefused)):
            enqueue_many([((1,), {}), ((wrong,), {}), ((2,), {})])
        assert (told, Task.objects.exists()) == ([], False)

    @pytest.mark.skipif("connection.vendor != 'postgresql'", reason="elsewhere nobody else writes meanwhile")
    @pytest.mark.django_db(transaction=True)
    def test_a_queue_that_is_paused_meanwhile_takes_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        examples.add.enqueue(0)
        insert = enqueueing._insert

        def pause() -> None:
            QuerySet(Queue).update(publish_paused=True)
            connection.close()

        def pause_after(*args: Any) -> Any:
            made = insert(*args)
            thread = threading.Thread(target=pause)
            thread.start()
            thread.join()
            return made

        monkeypatch.setattr(enqueueing, "_insert", pause_after)
        monkeypatch.setattr(enqueueing, "BATCH", 2)
        with pytest.raises(QueuePaused):
            enqueue_many([((number,), {}) for number in range(5)])
        assert Task.objects.count() == 1

    def test_they_are_part_of_the_transaction(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            enqueue_many([((1,), {}), ((2,), {})])
            raise RuntimeError
        assert not Task.objects.exists()

    def test_each_is_told(self) -> None:
        with Heard(framework.task_enqueued) as told:
            results = enqueue_many([((number,), {}) for number in range(3)])
        assert [result for _, _, result, _ in told] == results
        assert {sender for _, sender, *_ in told} == {StatorBackend}

    @pytest.mark.django_db(transaction=True)
    def test_workers_are_woken_once_after_the_commit_unless_they_are_for_later(self) -> None:
        told = []

        def hear(sender: Any, using: str, **kwargs: Any) -> None:
            told.append((sender, using, connection.in_atomic_block))

        became_ready.connect(hear)
        try:
            with transaction.atomic():
                examples.add.enqueue(1)
                assert told == []
            enqueue_many([((number,), {}) for number in range(3)])
            assert told == [(Task, "default", False)] * 2
            later = examples.add.using(run_after=timezone.now() + timedelta(hours=1))
            later.enqueue(1)
            if connection.vendor == "postgresql":
                assert len(told) == 2
        finally:
            became_ready.disconnect(hear)

    def test_none_is_fine(self) -> None:
        assert enqueue_many([]) == []
        assert not Queue.objects.exists()

    @pytest.mark.parametrize("call", [1, "ab", ((1,),), ((1,), {}, {}), (1, {}), ((1,), [])])
    def test_what_is_no_call_is_refused_in_one_line(self, call: Any) -> None:
        with pytest.raises(TypeError, match="each call must be a pair"):
            enqueue_many([((1,), {}), call])
        assert not Task.objects.exists()

    @override_settings(STATOR_TASKS={"PUBLISH_LIMIT": 3})
    def test_and_too_many_are(self) -> None:
        with pytest.raises(PublishRefused, match="4 tasks are more than are enqueued at once; the most is 3"):
            enqueue_many([((1,), {})] * 4)

    def test_async_code_may_do_so_too(self) -> None:
        backend = task_backends["default"]
        results = async_to_sync(backend.aenqueue_many)(examples.add, [((1,), {}), ((2,), {})])  # type: ignore[attr-defined]
        assert [task_of(result).data["args"] for result in results] == [[1], [2]]


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


class TestResults:
    @pytest.mark.parametrize("result_id", ["12345", "none", "", "-1", "0", "9" * 30, "1; drop", "1\0"])
    def test_what_is_not_there_does_not_exist(self, result_id: str) -> None:
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result_id)

    def test_nor_do_tasks_of_another_backend_or_of_queues(self) -> None:
        other = examples.second_time.enqueue()
        queue = Queue.objects.get()
        plain = Task.objects.create(queue=queue, action="echo", priority=1)
        for pk in (other.id, str(plain.pk)):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(pk)

    def test_the_result_of_another_task_is_a_mismatch(self) -> None:
        result = examples.add.enqueue(1)
        with pytest.raises(TaskException, match="does not match"):
            examples.send.get_result(result.id)
        assert examples.add.get_result(result.id).id == result.id

    def test_attempts_of_which_nothing_is_kept_are_counted(self) -> None:
        result = examples.add.enqueue(1)
        QuerySet(Task).update(state_attempts=1)
        drain(Task)
        result.refresh()
        assert (result.attempts, result.worker_ids[0]) == (2, "unknown")

    def test_a_running_task_says_so(self) -> None:
        from stator import claims

        result = examples.add.enqueue(1)
        [held] = claims.claim(Task)
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.RUNNING, 1)
        assert result.worker_ids == [held.token.hex[:12]]
        assert result.started_at == result.last_attempted_at
        assert result.started_at is not None


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


class TestPaths:
    """S1: what a row names is run only if it is a task."""

    @pytest.mark.parametrize(
        "path",
        [
            "os.system", "subprocess.Popen", "antigravity.fly", "this.s", "tests.testapp.tasks.no_task",
            "tests.testapp.tasks.os",
            "tests.testapp.tasks", "tests.testapp.tasks.add.func", "builtins.eval",
            "", ".", "a..b",
            "tests.testapp.nowhere.task", "tests.testapp.tasks.__builtins__", "../x.y", "x.y\n",
        ],
    )  # fmt: skip
    def test_all_else_is_an_error_of_the_row_and_nothing_is_imported(self, path: str) -> None:
        queue, _ = Queue.objects.get_or_create(name="default")
        data = {"args": ["true"], "kwargs": {}, "backend": "default"}
        # What a worker itself needs is loaded by the first.
        drain(Task)
        made = Task.objects.create(queue=queue, action=f"django:{path}", data=data, priority=1)
        loaded = set(sys.modules)
        drain(Task)
        made.refresh_from_db()
        assert set(sys.modules) == loaded
        assert (made.state, made.result) == ("pending", None)
        assert Report.objects.get(object_pk=str(made.pk)).error == "tasks.failures.NoHandler"
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(str(made.pk))

    @pytest.mark.parametrize("level", [logging.DEBUG, logging.CRITICAL])
    def test_a_task_in_a_queue_that_its_backend_has_not_is_an_error_of_the_row(self, level: int) -> None:
        queue = Queue.objects.create(name="bots")
        data = {"args": [1], "kwargs": {}, "backend": "default"}
        made = Task.objects.create(queue=queue, action="django:tests.testapp.tasks.add", data=data, priority=1)
        before = framework.signals.logger.level
        framework.signals.logger.setLevel(level)
        try:
            drain(Task)
        finally:
            framework.signals.logger.setLevel(before)
        made.refresh_from_db()
        assert (made.state, examples.calls) == ("pending", [])
        assert "has no queue 'bots'" in Report.objects.get(object_pk=str(made.pk)).message

    @pytest.mark.parametrize("queue_name", ["default", "bots"])
    def test_no_publisher_names_one(self, queue_name: str) -> None:
        queue = Queue.objects.create(name=queue_name)
        data = {"args": [1], "kwargs": {}, "backend": "default"}
        with pytest.raises(PublishRefused, match="enqueue it there"):
            queue.publish("django:tests.testapp.tasks.add", data)
        assert not Task.objects.exists()

    def test_modules_of_installed_apps_are_loaded_for_it(self) -> None:
        loaded = sys.modules.pop("tests.testapp.tasks")
        try:
            found = resolve("tests.testapp.tasks.add")
            assert found.func.__module__ == "tests.testapp.tasks"
        finally:
            sys.modules["tests.testapp.tasks"] = loaded

    def test_others_are_when_they_are_listed(self) -> None:
        with pytest.raises(NoHandler):
            resolve("tests.tasks.elsewhere.far")
        assert "tests.tasks.elsewhere" not in sys.modules
        with backend(OPTIONS={"modules": ["tests.tasks.elsewhere"]}):
            assert resolve("tests.tasks.elsewhere.far").name == "far"
        del sys.modules["tests.tasks.elsewhere"]

    def test_one_in_a_module_that_no_worker_imports_is_refused(self) -> None:
        far = import_module("tests.tasks.elsewhere").far
        try:
            with backend():
                with pytest.raises(PublishRefused) as caught:
                    far.enqueue()
                told = str(caught.value)
                assert "tests.tasks.elsewhere.far" in told
                assert "installed app" in told
                assert '["OPTIONS"]["modules"]' in told
                assert "\n" not in told
                assert not Task.objects.exists()
                [error] = task_backends["default"].check()
                assert (error.id, "tests.tasks.elsewhere" in error.msg) == ("tasks.E203", True)
                assert '["OPTIONS"]["modules"]' in error.hint
            with backend(OPTIONS={"modules": ["tests.tasks.elsewhere"]}):
                far.enqueue()
                assert task_backends["default"].check() == []
        finally:
            del sys.modules["tests.tasks.elsewhere"]
        assert Task.objects.count() == 1

    def test_one_that_its_module_has_under_another_name_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        renamed = framework.task(examples.no_task)
        monkeypatch.setattr(examples, "renamed", renamed, raising=False)
        with pytest.raises(PublishRefused, match="no_task is not a task"):
            renamed.enqueue()
        assert not Task.objects.exists()

    @pytest.mark.parametrize("many", [False, True])
    @pytest.mark.parametrize(("name", "told"), NAMES_THAT_NO_DATABASE_KEEPS)
    def test_a_queue_name_that_no_database_keeps_is_refused(self, name: str, told: str, many: bool) -> None:
        with backend():
            there = examples.add.using(queue_name=name)
            with pytest.raises(PublishRefused) as caught:
                task_backends["default"].enqueue_many(there, [((1,), {})]) if many else there.enqueue(1)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not Queue.objects.exists()

    @pytest.mark.parametrize(
        "data",
        [None, [], {}, {"args": [], "kwargs": {}}, {"args": [1], "kwargs": {}, "backend": "gone"},
         {"args": [1], "kwargs": {}, "backend": "default", "run_after": "soon"}],
    )  # fmt: skip
    def test_a_row_that_is_no_enqueued_task_is_an_error(self, data: Any) -> None:
        queue, _ = Queue.objects.get_or_create(name="default")
        made = Task.objects.create(queue=queue, action="django:tests.testapp.tasks.add", data=data, priority=1)
        drain(Task)
        made.refresh_from_db()
        assert (made.state, examples.calls) != ("completed", [])
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(str(made.pk))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"max_attempt": 3}, "'max_attempt' is not an option; did you mean max_attempts?"),
            ({"max_attempts": 0}, "max_attempts=0 must be a whole number of at least 1"),
            ({"timeout": "1"}, "timeout='1' must be a number of seconds above 0"),
            ({"modules": "os"}, "modules='os' must be a list of names of modules"),
            ({"rate": "fast"}, "rate='fast': write a number and a time"),
            ({"rate": 5}, "rate=5: write a number and a time"),
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


def backend(**params: Any) -> Any:
    return override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], **params}})


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
