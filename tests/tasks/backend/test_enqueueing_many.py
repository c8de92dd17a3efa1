"""Many tasks of Django's framework are enqueued at once: in order, all or none, and in few statements."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from stator.signals import became_ready
from stator.testing import advance, drain
from tasks.backend import framework
from tasks.backend.framework import TaskResultStatus
from tasks.backend.results import number_of
from tasks.exceptions import PublishRefused
from tasks.models import Task
from tasks.queue.priorities import django_priority
from tests.tasks.backend.making import Heard, enqueue_many
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


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

    def test_a_few_statements_insert_many(self, django_assert_max_num_queries: Any) -> None:
        examples.add.enqueue(0)
        with transaction.atomic(), django_assert_max_num_queries(1 if connection.vendor == "postgresql" else 2):
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

    def test_they_are_part_of_the_transaction(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
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
            assert told == [(Task, "default", False)] * 2
            later = examples.add.using(run_after=timezone.now() + timedelta(hours=1))
            later.enqueue(1)
            if connection.vendor == "postgresql":
                assert len(told) == 2
        finally:
            became_ready.disconnect(hear)

    @pytest.mark.parametrize("call", [1, "ab", ((1,),), ((1,), {}, {}), (1, {}), ((1,), [])])
    def test_what_is_no_call_is_refused_in_one_line(self, call: Any) -> None:
        with pytest.raises(TypeError, match="each call must be a pair"):
            enqueue_many([((1,), {}), call])
        assert not Task.objects.exists()
