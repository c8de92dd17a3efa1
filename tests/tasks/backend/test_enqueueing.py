"""Tasks of Django's framework come into their queue: when they are ready, and in which order they run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from stator.signals import became_ready
from stator.testing import advance, drain
from tasks.backend.framework import TaskResultDoesNotExist, task_backends
from tasks.backend.priorities import django_priority
from tasks.models import Queue, Task
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    examples.calls.clear()


def ago(**before: float) -> datetime:
    return timezone.now() - timedelta(**before)


def enqueue(name: str, **using: Any) -> Any:
    """Enqueue a task that notes its name when it runs."""
    return examples.note.using(**using).enqueue(name)


def order() -> list[str]:
    """The names in the order in which one worker runs them."""
    drain(Task)
    return list(examples.calls)


class TestReady:
    def test_a_time_that_has_passed_is_ready_at_once(self) -> None:
        made = task_of(enqueue("past", run_after=ago(hours=1)))
        assert (made.state_ready, made.status) == (True, "pending")

    def test_many_at_once_are_ready_too(self) -> None:
        late = examples.note.using(run_after=ago(seconds=1))
        task_backends["default"].enqueue_many(late, [(("a",), {}), (("b",), {})])  # type: ignore[attr-defined]
        assert set(Task.objects.values_list("state_ready", flat=True)) == {True}

    def test_the_time_of_a_task_decides_over_how_long_its_queue_hides_tasks(self) -> None:
        Queue.objects.create(name="default", invisible_for=3600)
        assert task_of(enqueue("past", run_after=ago(hours=1))).state_ready
        assert not task_of(enqueue("hidden")).state_ready

    @pytest.mark.django_db(transaction=True)
    def test_workers_are_woken_for_it_and_not_for_one_that_comes_later(self) -> None:
        told = []

        def hear(sender: Any, **kwargs: Any) -> None:
            told.append(sender)

        enqueue("first")
        became_ready.connect(hear)
        try:
            enqueue("past", run_after=ago(hours=1))
            assert told == [Task]
            enqueue("later", run_after=ago(hours=-1))
            if connection.vendor == "postgresql":
                assert told == [Task]
        finally:
            became_ready.disconnect(hear)


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

    def test_nor_is_that_of_a_task_that_was_deleted_or_of_many_that_were_rolled_back(self) -> None:
        backend: Any = task_backends["default"]
        with pytest.raises(RuntimeError), transaction.atomic():
            gone = backend.enqueue_many(examples.note, [((name,), {}) for name in "abc"])
            raise RuntimeError
        gone.append(enqueue("deleted"))
        task_of(gone[-1]).delete()
        others = [enqueue(name) for name in "defg"]
        assert not {result.id for result in gone} & {result.id for result in others}

    def test_a_task_is_told_the_id_under_which_it_was_enqueued_and_the_number_of_its_row_is_in_it(self) -> None:
        result = examples.describe.enqueue("note")
        drain(Task)
        result.refresh()
        assert result.return_value["id"] == result.id
        assert result.id.startswith(f"{Task.objects.get().pk}-")
        assert len(result.id) <= 64

    def test_ids_without_that_part_are_those_of_tasks_that_were_enqueued_without(self) -> None:
        result = enqueue("any")
        made = task_of(result)
        for wrong in (str(made.pk), f"{made.pk}-", f"{result.id}0", f"{made.pk}-{'0' * 16}"):
            with pytest.raises(TaskResultDoesNotExist):
                examples.note.get_result(wrong)
        del made.data["nonce"]
        made.save()
        assert examples.note.get_result(str(made.pk)).id == str(made.pk)


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

    def test_one_that_was_put_off_stands_in_line_from_its_time_on_and_not_before_those_that_waited_longer(self) -> None:
        enqueue("put off", run_after=ago(hours=-1))
        enqueue("enqueued before that time")
        enqueue("after that time", run_after=ago(hours=-1, seconds=-1))
        advance(3602, Task)
        assert order() == ["enqueued before that time", "put off", "after that time"]

    def test_of_equal_times_the_first_that_was_enqueued_comes_first(self) -> None:
        moment = ago(hours=1)
        for name in "abcdefgh":
            enqueue(name, run_after=moment)
        assert order() == [*"abcdefgh"]

    @pytest.mark.parametrize("priority", [-100, 0, 7, 100])
    @pytest.mark.parametrize("year", [1970, 2030, 2287, 8999])
    def test_the_priority_of_a_task_is_read_back_whatever_its_time(self, year: int, priority: int) -> None:
        moment = datetime(year, 6, 1, tzinfo=UTC)
        result = enqueue("any", run_after=moment, priority=priority)
        assert django_priority(task_of(result).priority) == priority
        result.refresh()
        again = examples.note.get_result(result.id)
        assert (again.task.priority, again.task.run_after) == (priority, moment)
