"""Schedules in the admin: the list, edits that do not undo ticks, and the acts."""

import re
from functools import partial

import pytest
from django.urls import reverse

from stator.models import move_rows
from stator.testing import drain
from tasks.models import Schedule
from tasks.testing import advance
from tests.stator.making import row
from tests.tasks.admin import pages
from tests.tasks.admin.pages import page

pytestmark = pytest.mark.django_db

LIST = reverse("admin:tasks_schedule_changelist")
act = partial(pages.act, url=LIST)


def test_edit_that_can_work_takes_effect_and_leaves_the_index_alone(admin_client, schedule):
    form = admin_client.get(page(schedule)).context["adminform"].form
    posted = {name: "" if value is None else value for name, value in form.initial.items()}
    posted |= {"data": "null", "metadata": "{}", "until_0": "", "until_1": "", "period": "1800", "jitter": "0"}
    advance(3700)
    drain(Schedule)
    assert row(schedule).tick_index == 1
    wrong = posted | {"name": "new", "period": "", "cron": "nonsense"}
    for url in (reverse("admin:tasks_schedule_add"), page(schedule)):
        refused = admin_client.post(url, wrong)
        assert list(refused.context["adminform"].form.errors) == ["cron"]
    response = admin_client.post(page(schedule), posted | {"tick_index": "0"})
    assert response.status_code == 302, response.context["adminform"].form.errors
    drain(Schedule)
    found = row(schedule)
    assert (found.period, found.tick_index) == (1800.0, 1)
    assert (found.planned - found.nominal).total_seconds() == 0


# Ticks of a schedule on its page


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
    assert "0 schedules will fire now" in act(admin_client, "run_now", schedule).content.decode()
    assert "stator_pause" not in admin_client.get(LIST).content.decode()
