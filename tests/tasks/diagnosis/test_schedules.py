"""Schedules whose tick is due and has not fired."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from stator.models import Worker
from stator.testing import attempt
from tasks.models import Schedule
from tasks.queue.serving import registered
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


def test_function_whose_ticks_failed_is_a_problem_until_one_succeeds(queue):
    backup = Schedule.objects.create(name="backup", cron="0 3 * * *", failed_ticks=3, last_error="OSError: no bucket")
    change(backup, state_ready=False, state_next_attempt=ago(-500))
    problem = by_code()["ticks_failed"]
    assert problem.text == "the last 3 ticks of backup failed: OSError: no bucket"
    assert (problem.level, problem.actions[0].pks) == ("error", (backup.pk,))
    assert problem.command == "manage.py tasks schedules backup --run"
    Schedule.objects.filter(pk=backup.pk).update(failed_ticks=0)
    assert found() == []


def test_schedule_whose_action_nobody_has_is_to_be_edited(admin_client):
    queue = make_nightly()
    schedule = Schedule.objects.create(name="report", queue=queue, action="mial", period=60)
    queue.actions_elsewhere = False
    queue.save()
    attempt(schedule)
    schedule.run_now()
    attempt(schedule)
    Worker.objects.update(published={"tasks": {"actions": registered()}})
    # One fault is one problem, although the tick is late too and the schedule counts as failing.
    Schedule.objects.filter(pk=schedule.pk).update(planned=Now() - timedelta(seconds=300))
    problem = by_code()["ticks_failed"]
    assert set(by_code()) == {"ticks_failed"}
    assert problem.sentence == "1 schedule cannot fire its tick: tasks.exceptions.UnknownAction"
    assert problem.detail.startswith("report; no action 'mial' is registered for queue nightly")
    assert [(action.label, action.action, action.pks) for action in problem.actions] == [("Edit", "", (schedule.pk,))]
    page = f"/admin/tasks/schedule/{schedule.pk}/change/"
    assert f'href="{page}">Edit</a>' in admin_client.get("/admin/stator/overview/").content.decode()
    shown = admin_client.get(page).content.decode()
    assert "Nobody has action" in shown
    assert "run_now" not in shown
    # Once somebody has it, an attempt mends it.
    queue.actions_elsewhere = True
    queue.save()
    [action] = by_code()["ticks_failed"].actions
    assert (action.action, action.pks) == ("stator_retry", (schedule.pk,))


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
