"""Status, attempts and holder of tasks in lists."""

import re

import pytest

from tests.stator.making import ago, change
from tests.tasks.admin.pages import TASKS, make_all, page, text_of
from tests.tasks.making import STATUSES, claim_one, make_queue

pytestmark = pytest.mark.django_db


def test_list_shows_each_status_who_holds_it_and_how_often_it_was_tried(admin_client):
    tasks = make_all(make_queue())
    text = text_of(admin_client.get(TASKS))
    for status in STATUSES:
        assert f'<span class="task-status task-{status}">{status}</span>' in text
        assert f"key-of-{status}" in text
    assert re.search(r"maker, (59 s|1 m) left", text)
    change(tasks["running"], state_locked_until=ago(100))
    assert re.search(r"maker, lease ran out 1 m 4\d s ago", text_of(admin_client.get(TASKS)))


def test_status_of_a_shared_task_is_that_of_its_parts(admin_client):
    queue = make_queue()
    whole = queue.publish("resize", worker_count=2).task
    badge = '<span class="task-status task-{0}">{0}</span>'.format
    assert text_of(admin_client.get(TASKS)).count(badge("pending")) == 3
    claim_one(queue)
    text = text_of(admin_client.get(TASKS))
    assert (text.count(badge("running")), text.count(badge("pending"))) == (2, 1)
    text = text_of(admin_client.get(page(whole)))
    assert "One part for each worker" in text
    assert f"It is a part of task {whole.pk}." in text_of(admin_client.get(page(whole.parts.first())))
    assert text.count(badge("running")) == 1
    assert '<span class="stator-badge stator-external">running</span>' in text
