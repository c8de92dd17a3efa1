"""Tasks of Django's framework come into their queue: which, when they are ready, and in which order they run."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from stator.signals import became_ready
from stator.testing import advance, drain
from tasks.backend import framework
from tasks.backend.framework import TaskException, TaskResultDoesNotExist, TaskResultStatus
from tasks.backend.results import number_of
from tasks.exceptions import PublishRefused, QueuePaused
from tasks.extensions.backend.priorities import django_priority
from tasks.models import Queue, Task
from tests.tasks.backend.making import Heard, backend, enqueue_many
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


def ago(**before: float) -> datetime:
    return timezone.now() - timedelta(**before)


def enqueue(name: str, **using: Any) -> Any:
    """Enqueue a task that notes its name when it runs."""
    return examples.note.using(**using).enqueue(name)


def order() -> list[str]:
    """The names in the order in which one worker runs them."""
    drain(Task)
    return list(examples.calls)


class TestIds:
    def test_an_id_that_was_rolled_back_is_not_that_of_another_task(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            gone = enqueue("gone")
            raise RuntimeError
        other = enqueue("other")
        assert other.id != gone.id
        with pytest.raises(TaskResultDoesNotExist, match=gone.id):
            examples.note.get_result(gone.id)
        assert examples.note.get_result(other.id).args == ["other"]


class TestOrder:
    def test_priority_comes_first_also_of_those_whose_time_has_passed(self) -> None:
        enqueue("low")
        enqueue("lowest", priority=-100, run_after=ago(days=2))
        enqueue("high", priority=20, run_after=ago(hours=1))
        enqueue("past", run_after=ago(days=1))
        assert order() == ["high", "past", "low", "lowest"]

    def test_of_equal_priority_the_earlier_time_comes_first_whenever_each_was_enqueued(self) -> None:
        enqueue("two hours", priority=20, run_after=ago(hours=2))
        enqueue("now", priority=20)
        enqueue("ten hours", priority=20, run_after=ago(hours=10))
        assert order() == ["ten hours", "two hours", "now"]

    def test_of_equal_times_the_first_that_was_enqueued_comes_first(self) -> None:
        moment = ago(hours=1)
        for name in "abcdefgh":
            enqueue(name, run_after=moment)
        assert order() == [*"abcdefgh"]


class TestEnqueueing:
    def test_a_task_is_ready_once_it_is_enqueued(self) -> None:
        before = timezone.now()
        result = examples.add.enqueue(1, right=2)
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"right": 2})
        assert (result.backend, result.attempts, result.worker_ids, result.errors) == ("default", 0, [], [])
        assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
        assert abs((result.enqueued_at - before).total_seconds()) < 60
        assert result.task == examples.add
        assert not result.is_finished
        assert result.id.startswith(f"{Task.objects.get().pk}-")
        assert len(result.id) <= 64
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        assert examples.calls == []

    def test_the_row_is_as_the_model_makes_it(self) -> None:
        first = timezone.now() + timedelta(hours=1)
        with backend(OPTIONS={"max_attempts": 7, "timeout": 12.5, "retention": 60}):
            # The first makes the queue, and is inserted by the ORM.
            for run_after in (None, first):
                examples.add.using(run_after=run_after, priority=3).enqueue("\u00fc", right=[1.5, None])
                examples.add.using(run_after=run_after, priority=3).enqueue("\u00fc", right=[1.5, None])
        queue = Queue.objects.get()
        own = ("id", "created", "notice_due", "state_changed")
        made: list[dict[str, Any]] = [
            {name: value for name, value in values.items() if name not in own}
            for values in Task.objects.order_by("pk").values()
        ]
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

    def test_a_paused_queue_takes_nothing(self) -> None:
        Queue.objects.create(name="default", publish_paused=True)
        with pytest.raises(QueuePaused):
            examples.add.enqueue(1)
        with pytest.raises(QueuePaused):
            enqueue_many([((1,), {}), ((2,), {})])
        assert not Task.objects.exists()

    @pytest.mark.parametrize("own", [600.0, None])
    def test_they_are_invisible_for_as_long_as_the_queue_has_it(self, settings: Any, own: float | None) -> None:
        settings.STATOR_TASKS = {"INVISIBLE_FOR": 36000.0 if own else 600.0}
        Queue.objects.create(name="default", invisible_for=own)
        first, second = examples.add.enqueue(1), *enqueue_many([((2,), {})])
        soon = examples.add.using(run_after=timezone.now() + timedelta(seconds=100)).enqueue(3)
        assert {task_of(each).status for each in (first, second, soon)} == {"invisible"}
        advance(110, Task)
        assert drain(Task) == 1
        advance(400, Task)
        assert drain(Task) == 0
        advance(110, Task)
        assert drain(Task) == 2

    def test_an_exclusive_queue_takes_none(self) -> None:
        Queue.objects.create(name="default", kind=Queue.Kind.EXCLUSIVE, exclusive_key="title")
        with pytest.raises(PublishRefused, match="default is exclusive by 'title'"):
            examples.add.enqueue(1)
        with pytest.raises(PublishRefused):
            enqueue_many([((1,), {}), ((2,), {})])
        assert not Task.objects.exists()

    def test_what_the_framework_forbids_is_refused(self) -> None:
        for wrong in (
            {"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"queue_name": "none"},
            {"run_after": datetime(2030, 1, 1)},  # noqa: DTZ001
        ):  # fmt: skip
            with pytest.raises(TaskException):
                examples.add.using(**wrong)


# Many tasks of Django's framework are enqueued at once: in order, all or none, and in few statements


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

    def test_as_few_statements_insert_many_as_one(self, django_assert_max_num_queries: Any) -> None:
        examples.add.enqueue(0)
        # Elsewhere than on PostgreSQL another one looks for the queue.
        most = 1 if connection.vendor == "postgresql" else 2
        with transaction.atomic():
            with django_assert_max_num_queries(most):
                examples.add.enqueue(1)
            with django_assert_max_num_queries(most):
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

    def test_one_that_no_database_or_no_json_has_is_refused_and_none_is_enqueued(self) -> None:
        with Heard(framework.task_enqueued) as told:
            for wrong in (object(), {1, 2}, b"\xff", [object()], float("nan"), "a\0b", "\ud800"):
                error = {"match": "the arguments"} if isinstance(wrong, float | str) else {"match": "Unsupported"}
                for enqueue in (
                    lambda wrong: examples.add.enqueue(wrong),
                    lambda wrong: enqueue_many([((1,), {}), ((wrong,), {}), ((2,), {})]),
                ):
                    with pytest.raises((TypeError, ValueError, PublishRefused), **error):
                        enqueue(wrong)
        assert (told, Task.objects.exists()) == ([], False)

    def test_all_are_part_of_the_transaction(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            examples.add.enqueue(1)
            enqueue_many([((1,), {}), ((2,), {})])
            raise RuntimeError
        assert not Task.objects.exists()

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
            made = task_of(enqueue("past", run_after=ago(hours=1)))
            assert (made.state_ready, made.status) == (True, "pending")
            assert told == [(Task, "default", False)] * 3
            enqueue("later", run_after=ago(hours=-1))
            if connection.vendor == "postgresql":
                assert len(told) == 3
        finally:
            became_ready.disconnect(hear)

    def test_what_is_no_call_is_refused_in_one_line(self) -> None:
        for call in (1, "ab", ((1,),), ((1,), {}, {}), (1, {}), ((1,), [])):
            with pytest.raises(TypeError, match="each call must be a pair"):
                enqueue_many([((1,), {}), call])
        assert not Task.objects.exists()
