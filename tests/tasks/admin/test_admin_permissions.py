"""Permissions in the admin of the queue: which pages each role sees, and which actions it has."""

from functools import partial

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tasks.models import Batch, Run, Schedule, Task
from tests.tasks.admin.pages import ADD_TASK, CONFIRMED, QUEUES, RUNS, TASKS, act, page, person
from tests.tasks.making import claim_one, make_queue, make_task

pytestmark = pytest.mark.django_db

PEOPLE = {
    "anonymous": (None, 302, 302, 302),
    "staff": ((), 403, 403, 403),
    "change": (("change_task", "change_queue", "view_run"), 200, 403, 403),
    "add": (("add_task", "view_task", "view_queue", "view_run"), 200, 403, 200),
    "force": (("force_task", "view_task", "view_queue", "view_run"), 200, 200, 403),
}


@pytest.mark.parametrize(("given", "seen", "moved", "added"), PEOPLE.values(), ids=list(PEOPLE))
def test_each_role_sees_pages_and_moves_and_publishes(client, given, seen, moved, added):
    task, dead = make_task(queue := make_queue()), make_task(make_queue("dead"), "errored")
    if given is not None:
        client.force_login(person(*given))
    for url in (TASKS, QUEUES, RUNS, page(task), page(queue), page(Run.objects.get())):
        assert client.get(url).status_code == seen, url
    assert client.get(ADD_TASK).status_code == added
    assert act(client, "stator_move", dead, follow=False, confirmed=False).status_code == moved
    posted = client.post(ADD_TASK, {"queue": queue.pk, "action": "resize"} | CONFIRMED).status_code
    assert posted == (302 if added == 200 else added)
    assert Task.objects.count() == 2 + (added == 200)


def test_nothing_is_done_without_the_token_of_a_form():
    client, task = Client(enforce_csrf_checks=True), make_task(make_queue())
    client.force_login(User.objects.create_superuser("root"))
    assert act(client, "task_cancel", task, follow=False).status_code == 403
    assert client.post(ADD_TASK, {"queue": task.queue_id, "action": "resize"} | CONFIRMED).status_code == 403
    assert [each.status for each in Task.objects.all()] == ["pending"]


def paused(queue):
    queue.pause(claim=True)
    return queue


def dead_batch(queue):
    batch = Batch()
    queue.publish("resize", batch=batch, max_attempts=1)
    claim_one(queue).fail("no")
    return batch


def schedule(queue, **columns):
    return Schedule.objects.create(name="hourly", queue=queue, action="resize", period=3600, **columns)


# Each act of these admins: on what it is, what its form is given, whether it asks first, and what has become of it.
ACTS = {
    "task_cancel": (make_task, {"reason": "r"}, True, lambda task: task.status == "canceled"),
    "task_requeue": (lambda queue: make_task(queue, "errored"), {}, True, lambda task: task.status == "pending"),
    "task_change": (make_task, {"initial-priority": "1", "priority": "2"}, True, lambda task: task.priority == 2),
    "queue_pause": (lambda queue: queue, {"claim": "on"}, True, lambda queue: queue.claim_paused),
    "queue_resume": (paused, {}, False, lambda queue: not queue.claim_paused),
}
ACTS["batch_cancel"] = Batch.open, {}, True, lambda one: one.state == "canceled"  # tasks.extensions.batches
ACTS["batch_requeue"] = dead_batch, {}, True, lambda one: one.counts()["pending"] == 1  # tasks.extensions.batches
ACTS["run_now"] = schedule, {}, False, lambda one: one.asked  # tasks.extensions.schedules
ACTS["pause"] = schedule, {}, False, lambda one: not one.enabled  # tasks.extensions.schedules
ACTS["resume"] = partial(schedule, enabled=False), {}, False, lambda one: one.enabled  # tasks.extensions.schedules


def test_table_has_every_act():
    given = [each.actions or () for model, each in admin.site._registry.items() if model._meta.app_label == "tasks"]
    names = {getattr(each, "__name__", each) for acts in given for each in acts}
    # Those of every managed model are tested with them.
    assert {name for name in names if not name.startswith("stator_")} == {*ACTS}


@pytest.mark.parametrize("name", ACTS)
def test_act_is_done_for_those_who_may_change_the_object_and_asks_first(name):
    make, given, asks, is_done = ACTS[name]
    found = make(make_queue())
    kind, client = found._meta.model_name, Client()
    url, rows = reverse(f"admin:tasks_{kind}_changelist"), type(found)._base_manager.filter(pk=found.pk)
    client.force_login(person(f"view_{kind}"))
    act(client, name, found, url=url, **given)
    assert not is_done(rows.get())
    client.force_login(person(f"view_{kind}", f"change_{kind}"))
    if asks:
        assert act(client, name, found, url=url, confirmed=False, follow=False, **given).status_code == 200
        assert not is_done(rows.get())
    assert act(client, name, found, url=url, follow=False, **given).status_code == 302
    assert is_done(rows.get())
