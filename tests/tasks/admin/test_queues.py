"""Queues and claims in the admin: lists, figures, settings and pauses."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry

from tasks.models import Queue
from tests.stator.making import ago, change
from tests.tasks.admin.pages import ADD_QUEUE, QUEUES, TASKS, act, make_all, make_dead, page, text_of
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db


def test_list_of_queues_shows_how_deep_they_are(admin_client):
    make_all(make_queue("one"))
    queue = make_queue("other")
    queue.pause(claim=True, author="ann", reason="deploying", seconds=600)
    change(make_task(queue), state_changed=ago(125))
    make_dead(make_queue("third"), 2)
    text = text_of(admin_client.get(QUEUES))
    rows = dict(re.findall(r'<th class="field-name">.*?>(\w+)</a>(.*?)</tr>', text, re.DOTALL))
    shown = {
        name: re.findall(r'field-(?:waiting|oldest|later|running|dead)[^"]*">(?:<(?:a|span)[^>]*>)*([^<]*)', row)
        for name, row in rows.items()
    }
    assert shown["one"][0] == "1"
    assert shown["one"][2:] == ["1", "1", "1"]
    assert shown["other"] == ["1", "2 m 5 s", "0", "0", "0"]
    assert shown["third"] == ["0", "\N{EM DASH}", "0", "2", "0"]
    assert "claiming paused by ann until " in rows["other"]
    assert "(deploying)" in rows["other"]


QUEUE = {"name": "new", "kind": "simple", "exclusive_key": "", "worker_retries": "0", "actions_elsewhere": "on"}


def test_queue_is_made_and_configured(admin_client):
    assert admin_client.post(ADD_QUEUE, QUEUE | {"kind": "exclusive", "exclusive_key": "title"}).status_code == 302
    queue = Queue.objects.get()
    queue.pause(claim=True, author="ann")
    posted = QUEUE | {"lease": "30", "max_attempts": "3", "kind": "simple", "exclusive_key": "", "name": "renamed"}
    assert admin_client.post(page(queue), posted).status_code == 302
    queue.refresh_from_db()
    assert (queue.lease, queue.max_attempts, queue.claim_paused) == (30.0, 3, True)
    assert (queue.name, queue.kind, queue.exclusive_key) == ("new", "exclusive", "title")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "exclusive"}, "exclusive_key"),
        ({"lease": "0"}, "lease"),
        ({"max_attempts": str(2**40)}, "max_attempts"),
        ({"name": "there"}, "name"),
        ({"name": "a\x1bb"}, "name"),
        ({"kind": "odd"}, "kind"),
        ({"http_actions": '["\\ud800"]'}, "http_actions"),
        ({"http_actions": "[[1]]"}, "http_actions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_cannot_work_are_errors_of_the_form(admin_client, given, field):
    make_queue("there")
    response = admin_client.post(ADD_QUEUE, QUEUE | given)
    assert list(response.context["adminform"].form.errors) == [field]
    assert Queue.objects.count() == 1


def test_queue_is_paused_with_reason_and_end_and_resumed(admin_client):
    queue = make_queue()
    asked = text_of(act(admin_client, "queue_pause", queue, confirmed=False))
    assert "No tasks are handed out to workers" in asked
    text = text_of(act(admin_client, "queue_pause", queue, claim="on", reason="deploying", seconds="10 m"))
    assert "1 queue paused. Claiming is paused." in text
    queue.refresh_from_db()
    assert (queue.publish_paused, queue.claiming_paused) == (False, True)
    assert (queue.pause_author, queue.pause_reason) == ("admin", "deploying")
    assert timedelta(seconds=590) < queue.pause_until - ago(0) < timedelta(seconds=601)
    again = text_of(act(admin_client, "queue_pause", queue, confirmed=False))
    assert "claiming paused by admin until" in again
    assert "the new pause replaces it" in again
    assert "1 queue resumed." in text_of(act(admin_client, "queue_resume", queue, stator_object="1"))
    queue.refresh_from_db()
    assert not queue.claim_paused
    assert "None of them is paused." in text_of(act(admin_client, "queue_resume", queue))
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert told[0] == "Paused claiming for 10 m. deploying"
    assert told[1].startswith("Resumed. It was claiming paused by admin until")
    assert len(told) == 2


def test_page_of_a_queue_shows_its_workers_and_its_figures(admin_client):
    queue = make_queue()
    make_task(queue, "running")
    text = text_of(admin_client.get(page(queue)))
    assert "<td>maker</td>" in text
    assert f"{TASKS}?queue__id__exact={queue.pk}&amp;status=running" in text
    Queue.objects.get().claimants.update(seen=ago(1000))
    assert "None has asked for tasks in the last minute." in text_of(admin_client.get(page(queue)))


def test_queue_is_deleted_only_when_it_is_empty(admin_client):
    queue, empty = make_queue(), make_queue("empty")
    make_task(queue)
    assert admin_client.post(f"{QUEUES}{queue.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.post(f"{QUEUES}{empty.pk}/delete/", {"post": "yes"}).status_code == 302
    act(admin_client, "delete_selected", queue, url=QUEUES, post="yes")
    assert list(Queue.objects.all()) == [queue]
