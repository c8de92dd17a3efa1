"""Status, attempts and holder of tasks in lists."""

import re

import pytest

from tests.stator.making import ago, change
from tests.tasks.admin.pages import TASKS, make_all, text_of
from tests.tasks.making import STATUSES, make_queue

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
