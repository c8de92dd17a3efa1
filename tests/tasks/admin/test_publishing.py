"""The admin's form that publishes a task."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.utils.html import escape

from tasks.models import Task
from tests.tasks.admin.pages import ADD_TASK, EVIL, publish, text_of
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db


def test_task_is_published_and_its_outcome_shown(admin_client):
    queue = make_queue()
    options = {
        "data": '{"image": 7}', "key": "k", "metadata": '{"title": "abc"}', "priority": "3", "invisible_for": "60",
        "max_attempts": "2", "timeout": "30", "lease": "20", "retention": "5", "worker_ids": "bot-1\n\n bot-2 ",
        "worker_count": "1",  # tasks.extensions.shared
    }  # fmt: skip
    assert "(inserted)." in text_of(publish(admin_client, queue, **options))
    task = queue.tasks.get()
    assert (task.data, task.key, task.metadata, task.priority) == ({"image": 7}, "k", {"title": "abc"}, 3)
    assert (task.status, task.max_attempts, task.timeout, task.lease, task.retention) == ("invisible", 2, 30, 20, 5)
    assert task.worker_ids == ["bot-1", "bot-2"]
    assert "(matched)." in text_of(publish(admin_client, queue, key="k"))
    text = text_of(publish(admin_client, queue, key="k", update="on", data="8"))
    assert "these values were written into it (matched)." in text
    task.refresh_from_db()
    assert (task.data, task.timeout, task.worker_ids) == (8, 30, ["bot-1", "bot-2"])
    assert LogEntry.objects.count() == 3


def test_form_that_is_sent_twice_publishes_one_task(admin_client):
    queue = make_queue()
    once = re.search(r'name="once" value="(\w+)"', text_of(admin_client.get(ADD_TASK)))[1]
    assert "is published: it is new" in text_of(publish(admin_client, queue, once=once))
    task = queue.tasks.get()
    told = text_of(publish(admin_client, queue, once=once))
    assert f"Task {task.pk} (resize) was published already: this form was sent twice." in told
    assert queue.tasks.count() == 1
    # Changed in between, it is another task; and so is that of another form.
    for changed in ({"once": once, "data": "8"}, {"once": "another"}):
        assert "is published: it is new" in text_of(publish(admin_client, queue, **changed))
    assert queue.tasks.count() == 3


def test_refusals_of_the_queue_are_errors_of_the_form(admin_client):
    queue = make_queue("strict", actions_elsewhere=False)
    for given, told in (
        ({"key": "a\u202eb"}, "must be a text of 1 to 200 printable characters"),
        ({"worker_ids": EVIL * 10}, escape("worker_ids: worker=")),
        ({"data": '["\\u0000"]'}, "NUL character"),
    ):
        assert told in re.sub(r"\s+", " ", text_of(publish(admin_client, queue, **given)))
    told = "no action &#x27;unheard&#x27; is registered for queue strict"
    assert told in text_of(publish(admin_client, queue, action="unheard"))
    exclusive = make_queue("exclusive", exclusive_key="title")
    assert "the metadata must have a value of &#x27;title&#x27;" in text_of(publish(admin_client, exclusive))
    queue.pause(publish=True, author="ann", reason="full")
    assert "accepts no tasks now: paused by ann (full)" in text_of(publish(admin_client, queue))
    assert not Task.objects.exists()
    assert not LogEntry.objects.exists()
