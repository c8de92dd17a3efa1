"""Actions that may start so often, or run so many at a time."""

from datetime import timedelta
from functools import partial

import pytest
from django.db import router
from django.db.models.functions import Now

from stator import claims
from stator.testing import advance, drain
from tasks.extensions.throttles import models as throttles
from tasks.extensions.throttles.frequency import Frequency
from tasks.models import ActionRate, ActionSlot, Task
from tests.stator.making import at_once
from tests.tasks.actions.making import make, report
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db


class TestThrottles:
    def test_no_more_start_than_the_rate_says_and_those_put_off_have_had_no_attempt(self) -> None:
        made = [make("twice", {"channel": channel, "number": n}) for n in range(4) for channel in "ab"]
        drain(Task)
        assert sorted(examples.seen) == ["a", "a", "b", "b"]
        put_off = Task.objects.filter(state="pending")
        assert [task.state_attempts for task in put_off] == [0, 0, 0, 0]
        assert report(put_off.earliest("pk")).message == "twice:a has started 2/h, its limit"
        advance(3 * 3600, Task)
        ActionRate.objects.update(until=Now() - timedelta(seconds=1))
        drain(Task)
        assert sorted(examples.seen) == ["a"] * 4 + ["b"] * 4
        assert Task.objects.filter(state="completed").count() == len(made)

    def test_those_put_off_come_back_apart_from_each_other(self) -> None:
        waits = [ActionRate.take("default", "k", Frequency(2, 10)) for _ in range(10)]
        assert waits[:2] == [0, 0]
        for place, wait in enumerate(waits[2:]):
            least = 10 * (place // 2)
            assert least < wait <= least + 20

    def test_one_key_runs_as_often_at_a_time_as_it_may(self) -> None:
        holder = make("single", {"door": "left"})
        [held] = claims.claim(Task)
        assert ActionSlot.take("default", ":single:left", 1, holder.pk, held.token) == 0
        same, other = make("single", {"door": "left"}), make("single", {"door": "right"})
        drain(Task)
        same.refresh_from_db()
        other.refresh_from_db()
        assert (same.state, same.state_attempts, other.state) == ("pending", 0, "completed")
        assert report(same).message == "1 of single:left are running, its limit"
        # Its claim ends without another word, as with a worker that dies: the place is free.
        holder.cancel(running=True)
        advance(5, Task)
        drain(Task)
        same.refresh_from_db()
        assert same.state == "completed"
        assert not ActionSlot.objects.exists()

    def test_what_says_nothing_any_more_is_pruned(self) -> None:
        ActionRate.take("default", "old", Frequency(1, 1))
        ActionRate.objects.update(until=Now() - timedelta(days=2))
        ActionRate.take("default", "new", Frequency(1, 60))
        ActionSlot.take("default", "gone", 1, 12345, "1" * 32)
        ActionSlot.objects.update(taken=Now() - timedelta(days=2))
        assert throttles.prune(router.db_for_write(Task)) == 2
        assert [row.key for row in ActionRate.objects.all()] == ["new"]


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_many_workers_as_many_start_as_the_rate_says(self) -> None:
        def start() -> list[float]:
            return [ActionRate.take("default", "k", Frequency(3, 3600)) for _ in range(5)]

        assert [wait for waits in at_once(*[start] * 6) for wait in waits].count(0.0) == 3

    def test_of_many_workers_as_many_get_a_place_as_there_are(self) -> None:
        for _ in range(6):
            make("single", {"door": "x"})
        turns = claims.claim(Task, 6)
        take = partial(ActionSlot.take, "default", "k", 2)
        assert at_once(*[partial(take, held.pk, held.token) for held in turns]).count(0.0) == 2
        assert ActionSlot.objects.count() == 2
