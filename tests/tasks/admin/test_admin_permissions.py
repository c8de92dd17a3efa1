"""Permissions in the admin of the queue: which pages each role sees, and which actions it has."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks.models import Queue, Run, Task
from tests.stator.making import row
from tests.tasks.admin.pages import ADD_TASK, CONFIRMED, QUEUES, RUNS, TASKS, act, page, person
from tests.tasks.making import fresh, make_queue, make_task

pytestmark = pytest.mark.django_db

PEOPLE = {
    "anonymous": (None, 302, 302, 302, 302),
    "staff": ((), 403, 403, 403, 403),
    "view": (("view_task", "view_queue", "view_run"), 200, 403, 403, 403),
    "change": (("change_task", "change_queue", "view_run"), 200, 200, 403, 403),
    "add": (("add_task", "view_task", "view_queue", "view_run"), 200, 403, 403, 200),
    "force": (("force_task", "view_task", "view_queue", "view_run"), 200, 403, 200, 403),
    "superuser": ("super", 200, 200, 200, 200),
}


def log_in(given, *, csrf):
    client = Client(enforce_csrf_checks=csrf)
    if given == "super":
        client.force_login(User.objects.create_superuser("root"))
    elif given is not None:
        client.force_login(person(*given))
    return client


@pytest.mark.parametrize("csrf", [False, True], ids=["", "without token"])
@pytest.mark.parametrize(("given", "seen", "acted", "moved", "added"), PEOPLE.values(), ids=list(PEOPLE))
def test_each_role_sees_pages_and_has_actions(given, seen, acted, moved, added, csrf):
    queue = make_queue()
    task, dead = make_task(queue), make_task(make_queue("dead"), "errored")
    client, run = log_in(given, csrf=csrf), Run.objects.get()
    for url in (TASKS, QUEUES, RUNS, page(task), page(queue), page(run)):
        assert client.get(url).status_code == seen, url
    assert client.get(ADD_TASK).status_code == added
    bulk = {"select_across": "1"}
    for name, where in (("task_cancel", task), ("task_requeue", dead), ("queue_pause", queue)):
        wanted = 403 if csrf else acted
        assert act(client, name, where, confirmed=False, follow=False).status_code == wanted
        changed = act(client, name, where, claim="on", reason="because", follow=False, **bulk).status_code
        assert changed == (302 if wanted == 200 else wanted)
    assert fresh(task).status == ("canceled" if acted == 200 and not csrf else "pending")
    assert fresh(dead).status == ("errored" if acted != 200 or csrf else "pending")
    assert row(queue).claim_paused is (acted == 200 and not csrf)
    if not csrf:
        assert act(client, "stator_move", dead, follow=False, confirmed=False).status_code == moved
        Queue.objects.update(claim_paused=False)
    before = Task.objects.count()
    posted = client.post(ADD_TASK, {"queue": queue.pk, "action": "resize"} | CONFIRMED).status_code
    assert posted == (403 if csrf else 302 if added == 200 else added)
    assert Task.objects.count() - before == (added == 200 and not csrf)
