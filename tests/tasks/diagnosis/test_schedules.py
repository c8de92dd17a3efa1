"""Schedules whose tick is due and has not fired."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from tasks.models import Schedule
from tests.stator.making import ago, change
from tests.tasks.diagnosis.problems import by_code, found, make_nightly

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue():
    return make_nightly()


def test_tick_that_does_not_fire(queue):
    schedule = Schedule.objects.create(name="report", queue=queue, action="mail", period=60)
    rows = Schedule.objects.filter(pk=schedule.pk)
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    rows.update(planned=Now() - timedelta(seconds=30))
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    assert found() == []
    rows.update(planned=Now() - timedelta(seconds=300))
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    problem = by_code()["schedule_late"]
    words = r"1 schedule has not fired a tick that was due up to 5 m[ \d s]* ago: report"
    assert re.fullmatch(words, problem.text)
    assert (problem.level, problem.actions[0].pks) == ("error", (schedule.pk,))
    queue.pause(publish=True, claim=False, author="ada")
    # The cause is the pause of its queue.
    assert set(by_code()) == {"queue_paused"}
    words = r"publishing of a queue is paused; 1 schedule has not fired, the first tick is 5 m[ \d s]* late"
    assert re.fullmatch(words, by_code()["queue_paused"].sentence)


@pytest.mark.parametrize("held", [False, True], ids=["in line", "held"])
def test_tick_stays_late_while_a_worker_attempts_it(queue, held):
    values: dict[str, object] = {"state_ready": not held}
    if held:
        values |= {"state_claim": uuid4(), "state_locked_until": ago(-30)}
    schedule = Schedule.objects.create(name="report", queue=queue, action="mail", period=60)
    Schedule.objects.filter(pk=schedule.pk).update(planned=Now() - timedelta(seconds=300))
    change(schedule, state_next_attempt=ago(-5), state_attempted=ago(1), **values)
    assert set(by_code()) == {"schedule_late"}
    # Something else keeps workers from it for longer, and is told.
    change(schedule, state_attempted=ago(3600), **values)
    assert found() == []


def test_tick_that_waits_for_the_task_of_the_tick_before_names_that_task(queue):
    schedule = Schedule.objects.create(name="report", queue=queue, action="mail", period=60)
    rows = Schedule.objects.filter(pk=schedule.pk)
    task = queue.publish("mail", key=schedule.task_key_of(4)).task
    rows.update(tick_index=5, planned=Now() - timedelta(seconds=300))
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    problem = by_code()["schedule_late"]
    words = r"1 schedule waits for the task of the tick before, which has not ended; the first tick is 5 m[ \d s]* late"
    assert re.fullmatch(words, problem.sentence)
    assert problem.detail == f"report for task {task.pk} (pending)"
    assert (problem.actions[0].action, problem.actions[0].pks) == ("task_cancel", (task.pk,))
    assert problem.command == f"manage.py tasks cancel {task.pk} --running"
    task.cancel()
    assert by_code()["schedule_late"].sentence.startswith("1 schedule has not fired")
