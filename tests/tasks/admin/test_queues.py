"""Queues and claims in the admin: lists, figures, settings and pauses."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from stator.models import Report
from tasks.admin.queue_flow import flow_of
from tasks.extensions.stats.samples import sample
from tasks.models import Queue
from tests.stator.making import ago, change
from tests.tasks.admin.pages import ADD_QUEUE, QUEUES, TASKS, act, make_dead, page, text_of
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db


def test_list_of_queues_shows_how_deep_they_are(admin_client):
    """The figures themselves are those of the command."""
    queue = make_queue("other")
    queue.pause(claim=True, author="ann", reason="deploying", seconds=600)
    change(make_task(queue), state_changed=ago(125))
    text = text_of(admin_client.get(QUEUES))
    shown = re.findall(r'field-(?:waiting|oldest|later|running|dead)[^"]*">(?:<(?:a|span)[^>]*>)*([^<]*)', text)
    assert re.fullmatch(r"1 2 m \d+ s 0 0 0", " ".join(shown))
    assert "claiming paused by ann until " in text
    assert "(deploying)" in text


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
    [({"kind": "exclusive"}, "exclusive_key"), ({"lease": "0"}, "lease"), ({"http_actions": "[[1]]"}, "http_actions")],
)
def test_settings_that_cannot_work_are_errors_of_the_form(admin_client, given, field):
    response = admin_client.post(ADD_QUEUE, QUEUE | given)
    assert list(response.context["adminform"].form.errors) == [field]
    assert not Queue.objects.exists()


def test_queue_is_paused_with_reason_and_end(admin_client):
    queue = make_queue()
    text = text_of(act(admin_client, "queue_pause", queue, claim="on", reason="deploying", seconds="10 m"))
    assert "1 queue paused. Claiming is paused." in text
    queue.refresh_from_db()
    assert (queue.publish_paused, queue.claiming_paused) == (False, True)
    assert (queue.pause_author, queue.pause_reason) == ("admin", "deploying")
    assert timedelta(seconds=500) < queue.pause_until - ago(0) < timedelta(seconds=601)
    again = text_of(act(admin_client, "queue_pause", queue, confirmed=False))
    assert "claiming paused by admin until" in again
    assert "the new pause replaces it" in again
    assert LogEntry.objects.get().get_change_message() == "Paused claiming for 10 m. deploying"


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


# Dead letters of a queue on its page, grouped by error


def test_page_of_a_queue_has_dead_letters_by_error_and_requeues_those_of_one(admin_client):
    queue = make_queue("mail")
    make_dead(queue, 3)
    last = queue.tasks.latest("pk")
    label = {"model_label": "tasks.task", "state": "pending", "fingerprint": "f" * 16}
    trace = 'File "/app/run.py", line 1, in main\n  File "/app/shop/mail.py", line 41, in send\nTimeoutError: away'
    for task in queue.tasks.exclude(pk=last.pk):
        message = f"mail {task.pk} is away\nsince noon"
        Report.objects.create(object_pk=str(task.pk), error="TimeoutError", message=message, traceback=trace, **label)
    response = admin_client.get(page(queue))
    told = [(len(one.pks), one.latest.line, one.latest.place) for one in response.context["queue_dead"]]
    (many, line, at), none = told
    assert (many, at, none) == (2, "shop/mail.py, line 41, in send", (1, "no error is stored", ""))
    assert re.fullmatch(r"TimeoutError: mail \d+ is away", line)
    # The list has the rows that the number counts, not those of another place with the same error.
    Report.objects.filter(object_pk=str(last.pk)).delete()
    Report.objects.create(object_pk=str(last.pk), error="TimeoutError", message="away", **label)
    chosen = response.context["queue_dead"][0].pks
    listed = re.search(r'href="([^"]*)">2</a>', response.text)
    assert listed is not None
    found = admin_client.get(unescape(listed[1])).context["cl"].result_list
    assert sorted(task.pk for task in found) == sorted(chosen)
    same = admin_client.get(TASKS, {"error": "f" * 16}).context["cl"].result_list
    assert {task.pk for task in same} == {*chosen, last.pk}
    asked = admin_client.post(TASKS, {"action": "task_requeue", "_selected_action": chosen})
    assert "2 dead letters will be requeued" in text_of(asked)


# The last hour of a queue on its page


def test_page_of_a_queue_charts_its_last_hour(admin_client):
    queue = make_queue("flow")
    change(make_task(queue, key="open"), created=ago(600))
    change(make_task(queue, "invisible", key="later"), created=ago(60))
    change(make_task(queue, "running", key="held", priority=-1), created=ago(4000))
    change(make_task(queue, "completed", key="done", priority=-2), created=ago(1800), state_changed=ago(1200))
    change(make_task(queue, "errored", key="dead", priority=-3), created=ago(1800), state_changed=ago(900))
    change(make_task(queue, "completed", key="old", priority=-4), created=ago(9000), state_changed=ago(8000))
    make_task(make_queue("other"), "running")
    change(make_task(queue, "completed", key="odd", priority=-5), created=ago(100), state_changed=ago(3000))
    found = flow_of(queue)
    assert (found.ended.total, found.ended.bad, found.open.latest) == (3, 1, 3)
    counts = [bar.point.count for bar in found.open.bars]
    # Only the one that is held; then two that ended as well; then one that ended, the open one, and at last all three.
    assert (counts[0], max(counts), counts[40], counts[50]) == (1, 3, 2, 2)
    text = text_of(admin_client.get(page(queue)))
    assert "Tasks that ended: 3 in all" in text
    assert "Tasks that had not ended: 3 now, 3 at most" in text


def test_days_and_months_of_a_queue_are_charted_by_samples(admin_client):
    queue = make_queue("flow")
    make_task(queue, key="open")
    make_task(queue, "completed", key="done", priority=-1)
    make_task(queue, "errored", key="dead", priority=-1)
    make_task(make_queue("other"), "completed")
    sample("default")
    for period in ("day", "month"):
        found = flow_of(queue, period)
        assert (found.ended.total, found.ended.bad, found.waiting.most) == (2, 1, 1)
        text = text_of(admin_client.get(page(queue), {"period": period}))
        for told in (
            f"The last {period}", "Tasks that ended: 2 in all", "1 gave up",
            "Tasks that waited for a worker: 1 at most",
        ):  # fmt: skip
            assert told in text
