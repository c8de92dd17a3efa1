"""Pages of the admin of the queue, acts that are asked for there, and tasks to see."""

import re
from html import unescape

from django.contrib.auth.models import Permission, User
from django.urls import reverse

from stator.models import move_rows
from tasks.rows.tasks import NO_PART
from tests.tasks.making import make_task

TASKS, QUEUES, RUNS = (reverse(f"admin:tasks_{name}_changelist") for name in ("task", "queue", "run"))
ADD_TASK, ADD_QUEUE = reverse("admin:tasks_task_add"), reverse("admin:tasks_queue_add")
CONFIRMED = {"stator_confirmed": "1"}
EVIL = "<script>alert(1)</script>"


def page(instance):
    return reverse(f"admin:tasks_{instance._meta.model_name}_change", args=[instance.pk])


def act(client, name, *rows, confirmed=True, follow=True, url=None, **data):
    """Ask for an act on rows, and confirm it."""
    posted = {"action": name, "index": "0", "_selected_action": [each.pk for each in rows], **data}
    url = url or (QUEUES if name.startswith("queue") else TASKS)
    if confirmed and name.startswith(("task", "stator_unlock")):
        posted |= seen_in(client.post(url, posted, follow=True))
    return client.post(url, posted | (CONFIRMED if confirmed else {}), follow=follow)


def seen_in(asked):
    """The hidden field of a confirmation page that says which rows it showed."""
    found = re.search(r'"stator_seen" value="([^"]*)"', asked.content.decode())
    return {"stator_seen": unescape(found[1])} if found else {}


def publish(client, queue, /, **data):
    return client.post(ADD_TASK, {"queue": queue.pk, "action": "resize"} | data | CONFIRMED, follow=True)


def text_of(response):
    assert response.status_code == 200
    return response.content.decode()


def make_all(queue):
    """One task of each status, the running one last."""
    names = ("errored", "completed", "canceled", "invisible", "running", "pending")
    return {name: make_task(queue, name, key=f"key-of-{name}") for name in names}


def make_dead(queue, count, **options):
    queue.publish_many([{"action": "resize", "key": f"dead-{number}", **options} for number in range(count)])
    move_rows(queue.tasks.filter(NO_PART, state="pending"), "errored", reason="for a test")


def person(*codenames):
    user = User.objects.create_user("+".join(codenames) or "staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return user
