"""Stored text never becomes markup in the admin of the queue."""

import re

import pytest
from django.utils.html import escape

from stator.models import History, Report
from tasks.extensions.api.models import Consumer
from tasks.models import Queue, Run
from tests.stator.making import change
from tests.tasks.admin.pages import ADD_TASK, EVIL, QUEUES, RUNS, TASKS, act, page, publish, text_of
from tests.tasks.making import claim_one, make_queue

pytestmark = pytest.mark.django_db


HIDING = f"{EVIL}e\u202eval"


def test_hostile_names_and_errors_are_escaped(admin_client):
    queue = make_queue("evil")
    Queue.objects.update(name=EVIL, pause_author=EVIL, pause_reason=EVIL, claim_paused=True)
    queue.refresh_from_db()
    task = queue.publish(EVIL, {"data": EVIL}, key=EVIL, metadata={EVIL: EVIL}).task
    Queue.objects.update(claim_paused=False)
    claim_one(queue).fail(f"{EVIL}\n{EVIL}")
    Run.objects.update(worker=EVIL, reason=f"{EVIL}\n{EVIL}")
    Queue.objects.update(claim_paused=True, name=HIDING)
    Consumer.objects.create(name=HIDING)
    queue.claimants.update(worker=EVIL)
    Report.objects.update(message=EVIL, error=EVIL)
    History.objects.create(
        model_label="tasks.task", object_pk=str(task.pk), version=1, source="pending", to=EVIL, actor=EVIL, reason=EVIL,
        error=EVIL,
    )  # fmt: skip
    change(task, result=HIDING, worker_ids=[EVIL])
    for response in (
        admin_client.get(TASKS), admin_client.get(page(task)), admin_client.get(QUEUES), admin_client.get(page(queue)),
        admin_client.get(RUNS), admin_client.get(page(Run.objects.get())), admin_client.get(ADD_TASK),
        act(admin_client, "task_cancel", task, confirmed=False),
        act(admin_client, "queue_pause", queue, confirmed=False),
        publish(admin_client, queue, key=EVIL, worker_ids=EVIL, data=EVIL),
        admin_client.get(TASKS, {"q": EVIL, "status": EVIL}), admin_client.get("/admin/tasks/consumer/"),
        act(admin_client, "queue_resume", queue),
    ):  # fmt: skip
        text = text_of(response)
        assert EVIL not in text
        assert escape(EVIL) in text
        # A form has to send what it was given.
        shown = re.sub(r"<(?:input|option)\b[^>]*>|<textarea.*?</textarea>", "", text, flags=re.DOTALL)
        assert "\u202e" not in shown
