"""Priorities of Django's framework and ours, there and back."""

import pytest

from tasks.backend.results import number_of
from tasks.models import Task
from tasks.queue.priorities import priority_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestPriority:
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
