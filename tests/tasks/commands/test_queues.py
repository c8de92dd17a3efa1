"""``manage.py tasks queue``: queues are made and changed, and every mistake is one line."""

from functools import partial

import pytest

from tasks.models import Queue
from tests import commanding

pytestmark = pytest.mark.django_db

run, asked = partial(commanding.run, "tasks", "queue"), partial(commanding.asked, "tasks", "queue")


def test_create_makes_a_queue_with_its_rules():
    told = run("create", "encode", "--http-action", "resize", "--http-action", "fetch", "--lease", "60")
    assert (
        told == "Queue encode is created: accepts known actions only; over HTTP resize, fetch of the site's own code.\n"
    )
    queue = Queue.objects.get()
    assert (queue.lease, queue.http_actions, queue.actions_elsewhere) == (60, ["resize", "fetch"], False)


def test_set_changes_what_is_given_and_leaves_the_rest():
    Queue.objects.create(name="encode", actions_elsewhere=True, http_actions=["resize"], lease=60)
    assert asked("set", "encode", "--no-actions-elsewhere", "--worker-retries", "2")["http_actions"] == ["resize"]
    told = run("set", "encode", "--no-http-actions")
    assert told == "Queue encode: accepts known actions only; over HTTP none of the site's own code.\n"
    queue = Queue.objects.get()
    assert (queue.actions_elsewhere, queue.http_actions, queue.worker_retries, queue.lease) == (False, [], 2, 60)
