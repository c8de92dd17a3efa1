"""Ticks: which fire, which are dropped, and what happens after a crash."""

from datetime import datetime, timedelta

import pytest

from stator.models import Report
from stator.testing import drain
from tasks.extensions.schedules import ticking
from tasks.models import Queue, Schedule, Task
from tasks.testing import advance
from tests.sizes import CROWDED
from tests.stator.making import change, row
from tests.tasks.schedules.making import go, now, schedule_of, seconds_until, ticks_of


def planned_times(tasks):
    return [datetime.fromisoformat(task.metadata["planned"]) for task in tasks]


class TestTicks:
    def test_first_tick_is_a_period_away_even_when_it_is_retried(self, queue):
        schedule = schedule_of(queue)
        go()
        planned = row(schedule).planned
        assert (planned - row(schedule).created).total_seconds() >= 60
        assert seconds_until(planned) <= 60
        # What the framework waits for is the tick, and never less.
        assert 0 <= (row(schedule).state_next_attempt - planned).total_seconds() < CROWDED
        Schedule.stator.filter(pk=schedule.pk).retry()
        drain(Schedule)
        assert (ticks_of(schedule), row(schedule).planned) == ([], planned)

    def test_each_tick_publishes_one_task_under_its_own_key(self, queue):
        schedule = schedule_of(queue, entity="channel-7", data={"a": 1}, metadata={"colour": "red"})
        for _ in range(4):
            go(60)
        assert ticks_of(schedule) == [0, 1, 2]
        task = Task.objects.get(key=f"{schedule.pk}:0")
        assert (task.queue, task.action, task.data) == (queue, "act", {"a": 1})
        assert task.metadata | {"planned": None} == {
            "colour": "red", "schedule": schedule.pk, "tick": 0, "entity": "channel-7", "planned": None,
        }  # fmt: skip

    def test_no_tick_comes_after_the_end(self, queue):
        schedule = schedule_of(queue, until=now() + timedelta(seconds=150))
        go()
        for _ in range(5):
            go(60)
        assert ticks_of(schedule) == [0, 1]
        assert row(schedule).state == "ended"

    @pytest.mark.parametrize(("missed", "fired"), [("one", 120), ("skip", None)])
    def test_worker_that_comes_after_the_end_fires_no_later_tick(self, queue, missed, fired):
        schedule = schedule_of(queue, until=now() + timedelta(seconds=150), missed=missed)
        go()
        first = row(schedule).planned
        go(1000)
        found = row(schedule)
        assert (found.state, found.dropped) == ("ended", 1 if fired else 2)
        # By the clock of the tests, which moved the plan back; a later tick is a minute less late.
        late = None if found.fired is None else (found.fired - found.fired_for).total_seconds()
        assert late == (pytest.approx(1000 - 120, abs=30) if fired else None), first

    def test_run_now_is_a_tick_more_and_leaves_the_timetable_alone(self, queue):
        schedule = schedule_of(queue, period=86400.0)
        go()
        planned = row(schedule).planned
        assert schedule.run_now()
        drain(Schedule)
        assert ticks_of(schedule) == [0]
        assert row(schedule).planned == planned
        go(86400)
        assert ticks_of(schedule) == [0, 1]

    def test_queue_that_takes_nothing_holds_the_tick(self, queue):
        schedule = schedule_of(queue)
        go()
        Queue.objects.update(publish_paused=True)
        go(60)
        found = row(schedule)
        assert (ticks_of(schedule), found.tick_index, found.state_failures) == ([], 0, 0)
        assert "accepts no tasks" in Report.objects.get(object_pk=str(schedule.pk)).message
        Queue.objects.update(publish_paused=False)
        go(ticking.PAUSED)
        assert ticks_of(schedule) == [0]

    def test_schedules_begin_anew_after_a_loss(self, queue):
        schedule = schedule_of(queue, missed="all")
        go()
        go(60)
        advance(86400, Schedule)
        assert Schedule.objects.all().begin_anew(beyond=1000) == 1
        go()
        assert ticks_of(schedule) == [0]
        go(60)
        assert ticks_of(schedule) == [0, 1001]


class TestMissed:
    @pytest.mark.parametrize(
        ("missed", "deadline", "fired", "dropped"),
        [("one", None, [120], 2), ("skip", 20, [], 3), ("all", None, [0, 60, 120], 0), ("all", 120, [60, 120], 1)],
    )
    def test_missed_ticks_fire_or_are_dropped_as_the_policy_says(self, queue, missed, deadline, fired, dropped):
        schedule = schedule_of(queue, missed=missed, deadline=deadline)
        go()
        go(seconds_until(row(schedule).planned) + 150)
        found = row(schedule)
        tasks = Task.objects.order_by("pk")
        base = found.nominal - timedelta(seconds=180)
        assert [round((moment - base).total_seconds()) for moment in planned_times(tasks)] == fired
        assert ticks_of(schedule) == list(range(len(fired)))
        assert found.dropped == dropped
        assert 0 < seconds_until(found.planned) <= 30


class TestCrash:
    def test_second_presentation_of_an_index_does_nothing(self, queue):
        schedule = schedule_of(queue)
        go()
        before = row(schedule)
        go(60)
        # As if what was written of the tick had been lost, and the task had not.
        change(schedule, tick_index=0, nominal=before.nominal, planned=before.planned)
        go(61)
        assert ticks_of(schedule) == [0]
        assert row(schedule).tick_index == 1
