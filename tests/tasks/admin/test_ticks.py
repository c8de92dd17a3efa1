"""Ticks of a schedule on its page."""

import re

import pytest

from stator.models import move_rows
from stator.testing import drain
from tasks.models import Schedule
from tasks.testing import advance
from tests.stator.making import row
from tests.tasks.admin.schedules import LIST, act, page

pytestmark = pytest.mark.django_db


def test_page_has_the_next_ticks_and_the_latest_with_their_tasks(admin_client, schedule):
    for _ in range(2):
        advance(3700)
        drain(Schedule)
        schedule.queue.tasks.update(priority=1)
        move_rows(schedule.queue.tasks.filter(state="pending"), "canceled", reason="for a test")
    response = admin_client.get(page(schedule))
    ticks = response.context["schedule_ticks"]
    assert [tick.index for tick in ticks] == list(range(row(schedule).tick_index - 1, -1, -1))
    assert {tick.task.status for tick in ticks} == {"canceled"}
    due = response.context["schedule_next"]
    assert len(due) == 10
    assert due[0] == row(schedule).planned
    text = response.content.decode()
    assert f"/admin/tasks/task/{ticks[0].task.pk}/change/" in text
    assert re.findall(r'name="action" value="(\w+)"', text)[:3] == ["run_now", "pause", "stator_move"]


def test_page_of_a_paused_schedule_has_one_way_to_resume_it_and_no_ticks(admin_client, schedule):
    assert act(admin_client, "pause", schedule).status_code == 200
    drain(Schedule)
    response = admin_client.get(page(schedule))
    assert response.context["schedule_next"] == []
    assert "the schedule is paused" in response.content.decode()
    assert re.findall(r'name="action" value="(\w+)"', response.content.decode())[:1] == ["resume"]
    assert "stator_pause" not in admin_client.get(LIST).content.decode()
